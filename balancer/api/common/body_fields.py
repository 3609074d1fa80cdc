"""The fields of a native body that are set; a field with `null` counts as absent."""

from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json

from ....shared.errors import InvalidRequest
from ....shared.validation import echo, not_json, parse_json
from .field_names import SAME_NAMES, FieldNames

T = TypeVar("T")


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
