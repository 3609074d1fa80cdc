"""Estimates the cost of parsing a JSON text before the text is parsed.

The time and memory of parsing depend on the number of values, not of bytes. A string of 16 MiB is
one value and takes 10 ms. 16 MiB of `[],[],…` are 5 million values and block the process for
seconds. Counting is cheap, works on the pieces of a text as they arrive, and stops as soon as a
limit is exceeded.
"""

from dataclasses import dataclass

from .errors import InvalidRequest

MAX_VALUES = 2**20 + 2**17
"""Maximum values of a body: the maximum token ids of a prompt, and 131,072 other values."""
MAX_STRINGS = 2**18
"""Maximum strings of a body, names of members included."""
MAX_CONTAINERS = 2**17
"""Maximum lists and objects of a body; one costs a hundred times as much as a number."""

_PIECE = 2**16
_BACKSLASH = b"\\"


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Maximum values, strings and containers of a text."""

    values: int = MAX_VALUES
    strings: int = MAX_STRINGS
    containers: int = MAX_CONTAINERS


OF_BODIES = JsonLimits()


class JsonCounter:
    """Counts the values, strings and containers of one text, which comes in pieces.

    For a text that is not JSON the counts mean nothing, but a large text is still refused early.
    """

    def __init__(self, limits: JsonLimits = OF_BODIES) -> None:
        self._limits = limits
        self.num_values = 1
        self.num_containers = 0
        self._num_quotes = 0
        self._is_in_string = False
        self._held_back = b""

    @property
    def num_strings(self) -> int:
        """The number of strings so far."""
        return self._num_quotes // 2

    def add(self, piece: bytes) -> None:
        """Count the next piece. Raises `InvalidRequest` if a limit is exceeded."""
        for start in range(0, len(piece), _PIECE):
            self._count(self._without_escapes(piece[start : start + _PIECE]))
            self._check()

    def _without_escapes(self, piece: bytes) -> bytes:
        """Return the piece without escaped quotes; keep a last backslash for the next piece."""
        text = self._held_back + piece
        self._held_back = b""
        if _BACKSLASH not in text:
            return text
        text = text.replace(b"\\\\", b"")
        if text.endswith(_BACKSLASH):
            self._held_back = _BACKSLASH
            text = text.removesuffix(_BACKSLASH)
        return text.replace(b'\\"', b"")

    def _count(self, text: bytes) -> None:
        parts = text.split(b'"')
        outside = b"".join(parts[1 if self._is_in_string else 0 :: 2])
        num_containers = outside.count(b"[") + outside.count(b"{")
        self.num_containers += num_containers
        self.num_values += num_containers + outside.count(b",")
        self._num_quotes += len(parts) - 1
        self._is_in_string ^= len(parts) % 2 == 0

    def _check(self) -> None:
        for counted, most, name in (
            (self.num_values, self._limits.values, "values"),
            (self.num_strings, self._limits.strings, "strings and names"),
            (self.num_containers, self._limits.containers, "lists and objects"),
        ):
            if counted > most:
                raise InvalidRequest(f"the body has more than {most} {name}, which is the limit")


def check_size(text: bytes) -> None:
    """Raise `InvalidRequest` if parsing `text` would exceed the default limits."""
    JsonCounter().add(text)
