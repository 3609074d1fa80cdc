"""Translates field names in errors from the neutral request to the names in the client's body."""

import re
from collections.abc import Mapping

from ....shared.errors import RequestError

_POSITION = r"\[(\d+)\]"


class FieldNames:
    """Maps neutral field names to an API's; a name also covers the fields nested in it."""

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
