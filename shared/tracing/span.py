"""A span of a trace as a plain value: an operation, its start and its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .trace_context import TraceContext

Attribute = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation; `start` and `end` are in nanoseconds since 1970.

    `error` is the code of the operation's error, if any. A `server` span answers a request of
    another process; `internal` spans are its parts.
    """

    name: str
    context: TraceContext
    parent: TraceContext | None
    start: int
    end: int
    kind: Literal["server", "internal"] = "internal"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a span's time; `start` and `end` are like the span's."""

    name: str
    start: int
    end: int
