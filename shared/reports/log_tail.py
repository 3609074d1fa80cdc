"""The last lines of this process's log, kept for operators on other hosts.

Invariant: at most `MAX_LINES`, each bounded, with growing numbers.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Lock

from .log_lines import MAX_LINE, MAX_LINES, LogLevel, LogLine


class LogTail(logging.Handler):
    """Keeps the log's last lines from level info up. Any thread may log and read."""

    def __init__(self, words: Callable[[logging.LogRecord], str]) -> None:
        """`words(record)` returns the text of a record."""
        super().__init__(logging.INFO)
        self._words = words
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self._newest = 0
        self._guard = Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's line. Never raises: an error must not end a request."""
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
        """Call `on_line` after each new line, on the thread that logs the line.

        `on_line` must be quick and not raise. Returns a function that ends the calls.
        """
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
        """Return the lines with numbers above `number`, oldest first."""
        with self._guard:
            return tuple(line for line in self._lines if line.number > number)

    def restore(self, lines: Iterable[LogLine]) -> None:
        """Add the lines of another process, in the order of their numbers."""
        with self._guard:
            known = sorted((*lines, *self._lines), key=lambda line: line.number)
            self._lines = deque(known, maxlen=MAX_LINES)
            self._newest = max([self._newest, *(line.number for line in known)])

    def append(self, lines: Iterable[LogLine]) -> None:
        """Add new lines of another process; lines that are already here stay.

        The new lines get numbers above the earlier ones, so that readers receive them.
        """
        with self._guard:
            known = {(line.at, line.text) for line in self._lines}
            for line in lines:
                if (line.at, line.text) not in known:
                    self._newest = max(self._newest + 1, line.number)
                    self._lines.append(replace(line, number=self._newest))
        self._tell()


def level_of(record: logging.LogRecord) -> LogLevel:
    """Return the level; any level above `error` counts as `error`."""
    if record.levelno >= logging.ERROR:
        return "error"
    return "warning" if record.levelno >= logging.WARNING else "info"


def shortened(text: str) -> str:
    """Return `text` without lone surrogates, which JSON cannot hold, and cut to a line's length."""
    whole = text.encode(errors="backslashreplace").decode()
    half = MAX_LINE // 2
    return whole if len(whole) <= MAX_LINE else f"{whole[:half]} … {whole[-half:]}"
