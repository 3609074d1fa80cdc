"""A span as a plain value: what was done from when to when, as a part of which trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .trace_context import TraceContext

Attribute = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`start` and `end` in nanoseconds since 1970. `error` is a code, where it did not go well.

    A `server` answers a request of another process; `internal` are the parts of that.
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
    """A part of what a span covers: its name, and `start` and `end` like the span's."""

    name: str
    start: int
    end: int
