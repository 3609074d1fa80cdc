"""One line on a terminal that says that a request waits, until its answer begins."""

from typing import Protocol, Self, TextIO

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


class WaitingLine:
    """Nothing is shown where `stream` is no terminal. Leaving a `with` removes the line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def show(self, waiting: Waits) -> None:
        """Write the line, in place of the one before."""
        if self._stream.isatty():
            self._stream.write(ERASE + waiting_words(waiting))
            self._stream.flush()
            self._is_shown = True

    def clear(self) -> None:
        """Remove the line, if there is one."""
        if self._is_shown:
            self._stream.write(ERASE)
            self._stream.flush()
            self._is_shown = False


def waiting_words(waiting: Waits) -> str:
    """Such as `waiting for a slot, at place 3, about 12 s`."""
    words = "waiting for the model" if waiting.what == "model" else "waiting for a slot"
    if waiting.position is not None:
        words += f", at place {waiting.position}"
    if waiting.seconds_left is not None:
        words += f", about {duration(waiting.seconds_left)}"
    return words
