"""Logging to stderr: text for people, JSON for machines.

A message has a context, which both formats show as keys and values: `logger.info("agent connected",
extra=context(agent=name, slots=4))`. Passwords in URLs are masked in all records; other secrets
must not be logged at all.

Errors quote what clients sent, so each part of a record is bounded. The middle of a long text is
cut, and the line says how many bytes are missing. Control characters for terminals are escaped, and
so are line ends in a message, so that nobody can forge a record.

A thread writes the lines: a reader that stops reading delays nobody (see `line_writer`).
"""

import json
import logging
import os
import re
import stat
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from .line_writer import LineWriter, writes_to
from .printable import printable
from .reports.log_lines import LogLine
from .reports.log_tail import LogTail
from .settings.declaration import LogFormat, LogLevel

logger = logging.getLogger(__name__)

_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+@")
_ACCESS_KEY = re.compile(r"ark_[A-Za-z0-9_-]{43}", re.ASCII)
MAX_MESSAGE_BYTES = 8 * 1024
MAX_VALUE_BYTES = 2 * 1024
"""Maximum bytes of each value in a context."""
MAX_TRACEBACK_BYTES = 32 * 1024

_LINES = "\n\t"
"""Control characters that a traceback keeps."""

_LONGEST_ESCAPE = 6
"""Maximum bytes of a character in UTF-8, or of the escape in its place."""

_NEEDS_QUOTES = re.compile(r'[\s="]|^$')
_NUMBERS = (bool, int, float)
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


def setup(
    format: LogFormat, level: LogLevel, stream: TextIO | None = None, *, keeps_lines: bool = True
) -> None:
    """Log Arriero's records from `level` up, and other libraries' warnings, to `stream`.

    `stream` is stderr by default. With `keeps_lines`, the last lines are kept for `recent`.
    """
    stream = stream or sys.stderr
    as_text = format == "text" or (format == "auto" and stream.isatty())
    handler = LineHandler(stream, TextFormatter() if as_text else JsonFormatter())
    handlers: list[logging.Handler] = [handler]
    if keeps_lines:
        handlers.append(LogTail(_line_of))
    logging.basicConfig(handlers=handlers, level=logging.WARNING, force=True)
    logging.getLogger("arriero").setLevel(level.upper())
    logging.captureWarnings(True)
    # No format shows which line of which thread logged: to look takes as long as all else.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def reopen() -> None:
    """Reopen the log's path, if the log is a file that was moved since `setup`.

    Programs that rotate logs move the file; earlier lines stay in the moved file.
    """
    handler = _line_handler()
    if handler is None or handler.file is None:
        return
    try:
        opened = os.open(handler.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    except OSError as error:
        logger.error(
            "the log file cannot be reopened, so lines still go to the old file: %s", error
        )
        return
    try:
        handler.move_to(opened)
    finally:
        os.close(opened)


def mark(**values: object) -> None:
    """Add these values to all later records, for example which of several processes logs."""
    _MARKS.update(values)


def say(line: str) -> None:
    """Write `line` to stderr after earlier records, without a time or level."""
    if handler := _line_handler():
        handler.writer.put(printable(line))
    else:
        sys.stderr.write(printable(line) + "\n")


def flush() -> None:
    """Wait until all records are written; give up if the reader has stopped."""
    if handler := _line_handler():
        handler.flush()


def num_dropped() -> int:
    """Return the number of lines that were dropped because their reader had stopped."""
    handler = _line_handler()
    return handler.writer.num_dropped if handler else 0


_MARKS: dict[str, object] = {}
"""Values in every line of this process; `mark` sets them once, at its start."""


class LineHandler(logging.Handler):
    """Formats a record on the logging thread; another thread writes the line to `stream`."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.writer = LineWriter(writes_to(stream), self._notice)
        self.file, self._number = _file_below(stream)
        """The log's path, if the log is a file."""

    def emit(self, record: logging.LogRecord) -> None:
        """Format and queue the record.

        Never blocks and never raises: an error must not end a request.
        """
        try:
            line = self.format(record)
        except Exception:  # of the program's arguments or their `str`; it is logged in their place
            reason = bounded(traceback.format_exc(), MAX_TRACEBACK_BYTES)
            line = f"a log record cannot be written: {printable(reason, keep=_LINES)}"
        self.writer.put(line)

    def flush(self) -> None:
        """Wait until all lines are written; Python calls this at exit."""
        self.writer.flush()

    def close(self) -> None:
        """Write the waiting lines; later lines are dropped."""
        self.writer.close()
        super().close()

    def move_to(self, opened: int) -> None:
        """Redirect the log to this file, and stdout if it goes to the same file as the log."""
        old = os.fstat(self._number)
        for number in (1, self._number):
            with suppress(OSError):  # it is closed
                if os.path.samestat(os.fstat(number), old):
                    os.dup2(opened, number)

    def _notice(self, num_lines: int) -> str:
        record = logging.LogRecord(
            *(__name__, logging.WARNING, __file__, 0),
            "%d lines of the log were dropped: nobody read them",
            (num_lines,),
            None,
        )
        return self.format(record)


def _file_below(stream: TextIO) -> tuple[Path | None, int]:
    """Return the path and number of the file that `stream` writes to; `None` and -1 if unknown."""
    try:
        number = stream.fileno()
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        return (Path(f"/proc/self/fd/{number}").readlink() if is_file else None), number
    except (OSError, ValueError):  # it is in memory, or this system does not say
        return None, -1


def recent(after: int = 0) -> tuple[LogLine, ...]:
    """Return the last lines numbered above `after`.

    The lines have at least level info, or the log's level if that is higher.
    """
    tail = _tail()
    return tail.after(after) if tail else ()


def restore(lines: Iterable[LogLine]) -> None:
    """Add the lines of another process, in the order of their numbers."""
    if tail := _tail():
        tail.restore(lines)


def append(lines: Iterable[LogLine]) -> None:
    """Add new lines of another process after the lines of this process."""
    if tail := _tail():
        tail.append(lines)


def listen(on_line: Callable[[], None]) -> Callable[[], None]:
    """Call `on_line` after each line that `recent` returns; see `LogTail.listen`."""
    tail = _tail()
    return tail.listen(on_line) if tail else _nothing


def _nothing() -> None:
    """Do nothing: there is no listener to remove."""


def _tail() -> LogTail | None:
    handlers = logging.getLogger().handlers
    return next((each for each in handlers if isinstance(each, LogTail)), None)


def _line_handler() -> LineHandler | None:
    handlers = logging.getLogger().handlers
    return next((each for each in handlers if isinstance(each, LineHandler)), None)


def context(**values: object) -> dict[str, Any]:
    """Return the `extra` argument of a log call, without values that are `None`."""
    return {"context": {key: value for key, value in values.items() if value is not None}}


def key_values(values: Mapping[str, object]) -> list[str]:
    """Format `values` as `key=value`, each quoted as a JSON string unless it is one word."""
    return [f"{key}={_quoted(value)}" for key, value in values.items()]


def redact(text: str) -> str:
    """Return `text` with access keys and passwords of URLs masked."""
    if "://" in text:
        text = _PASSWORD.sub(r"\1***@", text)
    return _ACCESS_KEY.sub("ark_***", text) if "ark_" in text else text


def bounded(text: str, most: int) -> str:
    """Return `text`; cut its middle if its UTF-8 has more than `most` bytes."""
    if len(text) * _LONGEST_ESCAPE <= most:
        return text
    data = text.encode(errors="backslashreplace")
    if len(data) <= most:
        return text
    half = most // 2
    head, tail = (part.decode(errors="ignore") for part in (data[:half], data[-half:]))
    return f"{head} … {len(data) - 2 * half} bytes cut … {tail}"


class TextFormatter(logging.Formatter):
    """Formats time, level, message, and the context as `key=value`; a traceback follows."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time_of(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        head = f"{time} {record.levelname:<7} {_message_of(record)}"
        lines = [printable(" ".join([head, *key_values(_context_of(record))]))]
        return "\n".join(lines + self._details(record))

    def _details(self, record: logging.LogRecord) -> list[str]:
        if not record.exc_info:
            return []
        details = _shown(self.formatException(record.exc_info), MAX_TRACEBACK_BYTES)
        return [printable(details, keep=_LINES)]


class JsonFormatter(logging.Formatter):
    """Formats one JSON object a line: time, level, logger, message, context and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time_of(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message_of(record),
        }
        entry = {**_context_of(record), **entry}
        if record.exc_info:
            entry["traceback"] = _shown(self.formatException(record.exc_info), MAX_TRACEBACK_BYTES)
        return printable(_JSON.encode(entry))


def _line_of(record: logging.LogRecord) -> str:
    """Return the message and its context, and the last line of an exception's traceback."""
    words = [_message_of(record), *key_values(_context_of(record))]
    if record.exc_info and record.exc_info[0] is not None:
        last = traceback.format_exception_only(*record.exc_info[:2])[-1]
        words.append(_shown(last.strip(), MAX_VALUE_BYTES))
    return " ".join(words)


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _context_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the context; all handlers of a record share one result."""
    shown: Mapping[str, object] | None = getattr(record, "shown_context", None)
    if shown is None:
        found: dict[str, object] = _MARKS | getattr(record, "context", {})
        shown = {key: _value(value) for key, value in found.items()}
        record.shown_context = shown
    return shown


def _message_of(record: logging.LogRecord) -> str:
    return _shown(record.getMessage(), MAX_MESSAGE_BYTES)


def _value(value: object) -> object:
    """Return a number or boolean unchanged, any other value as text."""
    if value is None or isinstance(value, _NUMBERS):
        return value
    return _shown(str(value), MAX_VALUE_BYTES)


def _shown(text: str, most: int) -> str:
    """Mask secrets, then cut: after a cut, a URL may no longer look like one."""
    return bounded(redact(text), most)


def _quoted(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if _NEEDS_QUOTES.search(text) else text
