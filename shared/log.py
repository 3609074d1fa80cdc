"""Logging to stderr: text for people, JSON for machines.

A message has a context, which both formats show as keys and values:
`logger.info("agent connected", extra=context(agent=name, slots=4))`. Passwords in URLs are masked
in whatever is logged; other secrets must not be logged at all.

Errors quote what clients sent, so each part of a record is bounded: the middle of a long text is
cut, and the line says how much. What would steer a terminal is escaped, and so is a line's end in a
message: nobody can make up a record.

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
"""Most bytes of each value in a context."""
MAX_TRACEBACK_BYTES = 32 * 1024

_LINES = "\n\t"
"""Controls that a traceback has."""

_LONGEST_ESCAPE = 6
"""Bytes of a character in UTF-8, or of the escape in its place."""

_NEEDS_QUOTES = re.compile(r'[\s="]|^$')
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


def setup(
    format: LogFormat, level: LogLevel, stream: TextIO | None = None, *, keeps_lines: bool = True
) -> None:
    """Log what our modules log from `level` on, and others' warnings, to `stream` (stderr).

    `keeps_lines`: the last lines are kept for `recent`.
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
    """Write to a new file where the log's was, if it is a file that was moved since `setup`.

    Programs that rotate logs move the file; what was written until now stays in it.
    """
    handler = _line_handler()
    if handler is None or handler.file is None:
        return
    try:
        opened = os.open(handler.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    except OSError as error:
        logger.error("the log cannot be opened again, and stays where it is: %s", error)
        return
    try:
        handler.move_to(opened)
    finally:
        os.close(opened)


def mark(**values: object) -> None:
    """Show these with whatever is logged from now on: which of several processes this is."""
    _MARKS.update(values)


def say(line: str) -> None:
    """Write `line` to stderr without a time or level, after what was logged before it."""
    if handler := _line_handler():
        handler.writer.put(printable(line))
    else:
        sys.stderr.write(printable(line) + "\n")


def flush() -> None:
    """Wait until what was logged is written, unless nobody reads it."""
    if handler := _line_handler():
        handler.flush()


def num_dropped() -> int:
    """How many lines were dropped because nobody read them."""
    handler = _line_handler()
    return handler.writer.num_dropped if handler else 0


_MARKS: dict[str, object] = {}
"""Fields of every line of this process; `mark` sets them once, at its start."""


class LineHandler(logging.Handler):
    """Formats where the record is logged, and has a thread write the line to `stream`."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.writer = LineWriter(writes_to(stream), self._notice)
        self.file, self._number = _file_below(stream)
        """Where the log is, if that is a file."""

    def emit(self, record: logging.LogRecord) -> None:
        """Never blocks, and never raises: what fails here must not end a request."""
        try:
            line = self.format(record)
        except Exception:  # of the program's arguments or their `str`; it is logged in their place
            reason = bounded(traceback.format_exc(), MAX_TRACEBACK_BYTES)
            line = f"a log record cannot be written: {printable(reason, keep=_LINES)}"
        self.writer.put(line)

    def flush(self) -> None:
        """Wait until the lines are written; Python calls this at exit."""
        self.writer.flush()

    def close(self) -> None:
        """Write what waits, then nothing any more."""
        self.writer.close()
        super().close()

    def move_to(self, opened: int) -> None:
        """Write to this file from now on, and whatever else goes where the log has gone."""
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
    """The path of the file that `stream` writes to, if it is one with a path, and its number."""
    try:
        number = stream.fileno()
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        return (Path(f"/proc/self/fd/{number}").readlink() if is_file else None), number
    except (OSError, ValueError):  # it is in memory, or this system does not say
        return None, -1


def recent(after: int = 0) -> tuple[LogLine, ...]:
    """The last lines, of those with numbers above `after`; at level info and above, if that is
    logged at all."""
    tail = _tail()
    return tail.after(after) if tail else ()


def restore(lines: Iterable[LogLine]) -> None:
    """Keep the lines of another process with this one's."""
    if tail := _tail():
        tail.restore(lines)


def append(lines: Iterable[LogLine]) -> None:
    """Keep what another process has logged since, after this one's."""
    if tail := _tail():
        tail.append(lines)


def listen(on_line: Callable[[], None]) -> Callable[[], None]:
    """Call `on_line` after each line that `recent` has; see `LogTail.listen`."""
    tail = _tail()
    return tail.listen(on_line) if tail else _nothing


def _nothing() -> None:
    """There is no reader to forget."""


def _tail() -> LogTail | None:
    handlers = logging.getLogger().handlers
    return next((each for each in handlers if isinstance(each, LogTail)), None)


def _line_handler() -> LineHandler | None:
    handlers = logging.getLogger().handlers
    return next((each for each in handlers if isinstance(each, LineHandler)), None)


def context(**values: object) -> dict[str, Any]:
    """The `extra` of a log call. A value of `None` is left out."""
    return {"context": {key: value for key, value in values.items() if value is not None}}


def key_values(values: Mapping[str, object]) -> list[str]:
    """`values` as `key=value`, quoted as JSON strings where they would not be one word."""
    return [f"{key}={_quoted(value)}" for key, value in values.items()]


def redact(text: str) -> str:
    """`text` with access keys and the passwords of URLs masked."""
    if "://" in text:
        text = _PASSWORD.sub(r"\1***@", text)
    return _ACCESS_KEY.sub("ark_***", text) if "ark_" in text else text


def bounded(text: str, most: int) -> str:
    """`text`, or its beginning and its end if its UTF-8 has more than `most` bytes."""
    if len(text) * _LONGEST_ESCAPE <= most:
        return text
    data = text.encode(errors="backslashreplace")
    if len(data) <= most:
        return text
    half = most // 2
    head, tail = (part.decode(errors="ignore") for part in (data[:half], data[-half:]))
    return f"{head} … {len(data) - 2 * half} bytes cut … {tail}"


class TextFormatter(logging.Formatter):
    """Time, level, message, then the context as `key=value`; a traceback follows on its lines."""

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
    """One object a line: time, level, logger, message, the context's keys, and any traceback."""

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
    """The message and its context; of an exception its last line."""
    words = [_message_of(record), *key_values(_context_of(record))]
    if record.exc_info and record.exc_info[0] is not None:
        last = traceback.format_exception_only(*record.exc_info[:2])[-1]
        words.append(_shown(last.strip(), MAX_VALUE_BYTES))
    return " ".join(words)


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _context_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Made once, for all who write the record."""
    shown: Mapping[str, object] | None = getattr(record, "shown_context", None)
    if shown is None:
        found: dict[str, object] = _MARKS | getattr(record, "context", {})
        shown = {key: _value(value) for key, value in found.items()}
        record.shown_context = shown
    return shown


def _message_of(record: logging.LogRecord) -> str:
    return _shown(record.getMessage(), MAX_MESSAGE_BYTES)


def _value(value: object) -> object:
    """Numbers as they are, all else as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return _shown(str(value), MAX_VALUE_BYTES)


def _shown(text: str, most: int) -> str:
    """Masked first: a URL that was cut may no longer look like one."""
    return bounded(redact(text), most)


def _quoted(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if _NEEDS_QUOTES.search(text) else text
