"""The fields of bodies: which are set, and the names that errors give them."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json

from ....shared.errors import InvalidRequest, RequestError
from ....shared.validation import echo, not_json, parse_json

T = TypeVar("T")

_POSITION = r"\[(\d+)\]"


class FieldNames:
    """Maps neutral field names in errors to an API's; a name covers the fields nested in it."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Prepare the map. In a neutral name `[]` matches any index.

        The API's name repeats the indices in order.
        """
        self._names = [(_pattern(neutral), _template(own)) for neutral, own in names.items()]

    def also(self, names: Mapping[str, str]) -> "FieldNames":
        """Return these names together with `names`, which take precedence."""
        both = FieldNames(names)
        both._names += self._names
        return both

    def renamed(self, error: RequestError) -> RequestError:
        """Return `error` with the API's name of its field, in the message as well."""
        if error.field is None:
            return error
        own = self._own(error.field)
        if own == error.field:
            return error
        message = error.message.replace(f"`{error.field}`", f"`{own}`")
        return type(error)(message, field=own, retry_after=error.retry_after)

    def _own(self, field: str) -> str:
        for pattern, template in self._names:
            renamed, count = pattern.subn(template, field)
            if count:
                return renamed
        return field


SAME_NAMES = FieldNames({})
"""For an API with the same field names as the neutral request."""


def _pattern(neutral: str) -> re.Pattern[str]:
    parts = map(re.escape, neutral.split("[]"))
    return re.compile("^" + _POSITION.join(parts) + r"(?![\w-])")


def _template(own: str) -> str:
    first, *others = own.split("[]")
    return first + "".join(rf"[\{group}]{each}" for group, each in enumerate(others, 1))


# ---- the fields that are set; `null` counts as absent


def body_fields(body: bytes) -> dict[str, Any]:
    """Return the members of the JSON object `body` that are not null. Raises `InvalidRequest`."""
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(not_json("the body", str(error))) from error
    if not isinstance(raw, dict):
        raise InvalidRequest("the body must be a JSON object")
    return {name: value for name, value in raw.items() if value is not None}


def in_list(given: dict[str, Any], field: str) -> FieldNames:
    """Wrap a single text, or a single list of token ids, in a list.

    Also returns the names for errors, because the client sent no list. Raises `InvalidRequest` for
    other values.
    """
    value = given.get(field)
    if value is None:
        return SAME_NAMES
    is_ids = isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
    if isinstance(value, str) or is_ids:
        given[field] = [value]
        return FieldNames({f"{field}[0]": field})
    if not isinstance(value, list):
        raise InvalidRequest(
            f"`{field}` must be a string or a list, not {echo(value)}", field=field
        )
    return SAME_NAMES


def parse_named(adapter: TypeAdapter[T], body: bytes, names: FieldNames) -> T:
    """Parse `body` as the adapter's type. Raises `InvalidRequest` with fields by `names`."""
    try:
        return parse_json(adapter, body)
    except InvalidRequest as error:
        raise names.renamed(error) from error
