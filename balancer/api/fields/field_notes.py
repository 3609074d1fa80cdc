"""Notes on the ignored fields of one body."""

import re

MAX_NAMES = 16
"""Maximum ignored fields of one body that are reported by name."""

MAX_NAME = 64
"""Maximum length of a reported field name, in characters."""

OTHER = "other"
"""The metric's label for fields that are in no table."""

_UNPRINTABLE = re.compile(r"[^\w.=\[\]-]", re.ASCII)


class FieldNotes:
    """The ignored fields, noted while a body is read.

    With `is_strict`, fields are refused instead.
    """

    def __init__(self, *, is_strict: bool = False) -> None:
        self.is_strict = is_strict
        self._ignored: dict[str, str] = {}
        self._has_more = False

    def add(self, path: str, *, is_known: bool) -> None:
        """Note that the field at `path` was ignored; `is_known`: a table lists the field."""
        name = _UNPRINTABLE.sub("_", path[:MAX_NAME])
        if name in self._ignored:
            return
        if len(self._ignored) == MAX_NAMES:
            self._has_more = True
            return
        self._ignored[name] = path if is_known else OTHER

    @property
    def names(self) -> tuple[str, ...]:
        """Return the ignored fields in printable ASCII, each once; at most `MAX_NAMES`."""
        return tuple(self._ignored)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return for each of `names` its path in the table, or `OTHER`.

        Metrics use these few values as labels.
        """
        return tuple(self._ignored.values())

    @property
    def header(self) -> str:
        """Return the names as the value of a header; empty if nothing was ignored."""
        return ", ".join((*self._ignored, *(("...",) if self._has_more else ())))
