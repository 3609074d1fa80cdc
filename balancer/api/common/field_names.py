"""Errors about the neutral request, told by the names that the client's own body has for fields."""

import re
from collections.abc import Mapping

from ....shared.errors import RequestError

_POSITION = r"\[(\d+)\]"


class FieldNames:
    """From the neutral names of fields to an API's; a name stands for what is within it, too."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """In a neutral name `[]` stands for any position, and in the API's for the same one."""
        self._names = [(_pattern(neutral), _template(own)) for neutral, own in names.items()]

    def told(self, error: RequestError) -> RequestError:
        """`error` with its field by the API's name, in its message as well."""
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
"""For an API that calls every field as the neutral request does."""


def _pattern(neutral: str) -> re.Pattern[str]:
    parts = map(re.escape, neutral.split("[]"))
    return re.compile("^" + _POSITION.join(parts) + r"(?![\w-])")


def _template(own: str) -> str:
    return own.replace("[]", r"[\1]")
