"""One line on a terminal that says that a request waits, until its answer begins.

Elsewhere there is a line when no agent serves the model, and for each other reason of that.
"""

from shutil import get_terminal_size
from typing import Protocol, Self, TextIO

from ..shared.printable import printable
from .output import duration

ERASE = "\r\x1b[K"


class Waits(Protocol):
    """The client's event `Waiting`."""

    @property
    def position(self) -> int | None: ...

    @property
    def what(self) -> str: ...

    @property
    def seconds_left(self) -> float | None: ...

    @property
    def reason(self) -> str | None: ...


class WaitingLine:
    """Leaving a `with` removes the line of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = False
        self._reason: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def show(self, waiting: Waits) -> None:
        """Write the line, in place of the one before."""
        if self._stream.isatty():
            columns = get_terminal_size().columns
            self._stream.write(ERASE + _cut(waiting_words(waiting), columns - 1))
            self._stream.flush()
            self._is_shown = True
        elif waiting.reason is not None and waiting.reason != self._reason:
            self._stream.write(waiting_words(waiting) + "\n")
        self._reason = waiting.reason

    def clear(self) -> None:
        """Remove the line, if there is one."""
        if self._is_shown:
            self._stream.write(ERASE)
            self._stream.flush()
            self._is_shown = False


def waiting_words(waiting: Waits) -> str:
    """Such as `waiting for a slot, at place 3, about 12 s`, or why no agent serves the model."""
    words = "waiting for the model" if waiting.what == "model" else "waiting for a slot"
    if waiting.position is not None:
        words += f", at place {waiting.position}"
    if waiting.seconds_left is not None:
        words += f", about {duration(waiting.seconds_left)}"
    return words if waiting.reason is None else printable(f"{words}: {waiting.reason}")


def _cut(words: str, most: int) -> str:
    """One line: a longer one could not be removed."""
    return words if len(words) <= most else words[: max(0, most - 1)] + "…"
