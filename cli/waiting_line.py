"""A status line on a terminal that shows why a request waits, until its answer begins.

If the output is not a terminal, it gets a line if no agent serves the model, and one for each new
reason.
"""

from shutil import get_terminal_size
from typing import TYPE_CHECKING, Self, TextIO

from ..shared.printable import printable
from .output import duration

if TYPE_CHECKING:
    from ..client.answers import Reading, Waiting

ERASE = "\r\x1b[K"


class WaitingLine:
    """Shows the status line; leaving a `with` block removes it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = False
        self._reason: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def show(self, waiting: "Waiting | Reading") -> None:
        """Replace the line."""
        if self._stream.isatty():
            columns = get_terminal_size().columns
            self._stream.write(ERASE + _cut(waiting_words(waiting), columns - 1))
            self._stream.flush()
            self._is_shown = True
        reason = getattr(waiting, "reason", None)
        if not self._stream.isatty() and reason is not None and reason != self._reason:
            self._stream.write(waiting_words(waiting) + "\n")
        self._reason = reason

    def clear(self) -> None:
        """Remove the line, if there is one."""
        if self._is_shown:
            self._stream.write(ERASE)
            self._stream.flush()
            self._is_shown = False


def waiting_words(waiting: "Waiting | Reading") -> str:
    """Return `waiting for a slot, at place 3, about 12 s`, or why no agent serves the model."""
    from ..client.answers import Reading

    if isinstance(waiting, Reading):
        share = waiting.read_tokens / max(1, waiting.prompt_tokens)
        return "reading the prompt" + (f": {share:.0%}" if waiting.prompt_tokens else "")
    words = "waiting for the model" if waiting.what == "model" else "waiting for a slot"
    if waiting.position is not None:
        words += f", at place {waiting.position}"
    if waiting.seconds_left is not None:
        words += f", about {duration(waiting.seconds_left)}"
    return words if waiting.reason is None else printable(f"{words}: {waiting.reason}")


def _cut(words: str, most: int) -> str:
    """Cut the words to one line, because a longer text could not be removed."""
    return words if len(words) <= most else words[: max(0, most - 1)] + "…"
