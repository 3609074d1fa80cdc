"""The last lines of this process's log, kept for operators who look at them from elsewhere.

Invariant: at most `MAX_LINES`, each bounded, with growing numbers.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Lock

from .log_lines import MAX_LINE, MAX_LINES, LogLevel, LogLine


class LogTail(logging.Handler):
    """Keeps what is logged at level info and above. Any thread may log and any may read."""

    def __init__(self, words: Callable[[logging.LogRecord], str]) -> None:
        """`words(record)` writes a record as text."""
        super().__init__(logging.INFO)
        self._words = words
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self._newest = 0
        self._guard = Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises: what fails here must not end a request."""
        try:
            text = self._words(record)
        except Exception as error:  # of the program's arguments or their `str`; it is kept instead
            text = f"a log record cannot be written: {type(error).__name__}"
        with self._guard:
            # Milliseconds: the lines of a new process have higher numbers than those before.
            self._newest = max(self._newest + 1, int(record.created * 1000))
            line = LogLine(
                number=self._newest, at=record.created, level=level_of(record), text=shortened(text)
            )
            self._lines.append(line)
        self._tell()

    def listen(self, on_line: Callable[[], None]) -> Callable[[], None]:
        """Call `on_line` after each new line, on whichever thread logs it; it must be quick and not
        raise. Returns what ends that."""
        with self._guard:
            self._listeners = (*self._listeners, on_line)

        def forget() -> None:
            with self._guard:
                self._listeners = tuple(each for each in self._listeners if each is not on_line)

        return forget

    def _tell(self) -> None:
        for on_line in self._listeners:
            on_line()

    def after(self, number: int) -> tuple[LogLine, ...]:
        """The lines with higher numbers, oldest first."""
        with self._guard:
            return tuple(line for line in self._lines if line.number > number)

    def restore(self, lines: Iterable[LogLine]) -> None:
        """Take in the lines of another process, in the order of their numbers."""
        with self._guard:
            known = sorted((*lines, *self._lines), key=lambda line: line.number)
            self._lines = deque(known, maxlen=MAX_LINES)
            self._newest = max([self._newest, *(line.number for line in known)])

    def append(self, lines: Iterable[LogLine]) -> None:
        """Take in lines that another process has logged since; those that are here already stay.

        Their numbers follow those of the lines before, so that readers get them.
        """
        with self._guard:
            known = {(line.at, line.text) for line in self._lines}
            for line in lines:
                if (line.at, line.text) not in known:
                    self._newest = max(self._newest + 1, line.number)
                    self._lines.append(replace(line, number=self._newest))
        self._tell()


def level_of(record: logging.LogRecord) -> LogLevel:
    """Whatever is worse than an error is one."""
    if record.levelno >= logging.ERROR:
        return "error"
    return "warning" if record.levelno >= logging.WARNING else "info"


def shortened(text: str) -> str:
    """Without halves of characters, which no JSON can hold, and no longer than a line may be."""
    whole = text.encode(errors="backslashreplace").decode()
    half = MAX_LINE // 2
    return whole if len(whole) <= MAX_LINE else f"{whole[:half]} … {whole[-half:]}"
