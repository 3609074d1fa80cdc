"""Logging to stderr: text for people, JSON for machines.

What a message is about goes into its context, which both formats show by key:
`logger.info("agent connected", extra=context(agent=name, slots=4))`. Passwords in URLs are masked
in whatever is logged; other secrets must not be handed over at all.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

Format = Literal["auto", "text", "json"]
Level = Literal["debug", "info", "warning", "error"]

_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+@")
_NEEDS_QUOTES = re.compile(r'[\s="]|^$')


def setup(format: Format, level: Level, stream: TextIO | None = None) -> None:
    """Log what our modules say from `level` on, and others' warnings, to `stream` (stderr)."""
    stream = stream or sys.stderr
    as_text = format == "text" or (format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("arriero").setLevel(level.upper())
    logging.captureWarnings(True)


def context(**values: object) -> dict[str, Any]:
    """The `extra` of a log call. A value of `None` is left out."""
    return {"context": {key: value for key, value in values.items() if value is not None}}


def key_values(values: Mapping[str, object]) -> list[str]:
    """`values` as `key=value`, quoted as JSON strings where they would not be one word."""
    return [f"{key}={_quoted(value)}" for key, value in values.items()]


def redact(text: str) -> str:
    """`text` with the passwords of URLs masked."""
    return _PASSWORD.sub(r"\1***@", text)


class TextFormatter(logging.Formatter):
    """Time, level, message, then the context as `key=value`; a traceback follows on its lines."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time_of(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        head = f"{time} {record.levelname:<7} {record.getMessage()}"
        lines = [" ".join([head, *key_values(_context_of(record))])]
        return redact("\n".join(lines + self._details(record)))

    def _details(self, record: logging.LogRecord) -> list[str]:
        return [self.formatException(record.exc_info)] if record.exc_info else []


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the context's keys, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time_of(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry = _context_of(record) | entry
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return redact(json.dumps(entry, ensure_ascii=False, default=str))


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _context_of(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = getattr(record, "context", {})
    return found


def _quoted(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if _NEEDS_QUOTES.search(text) else text
