"""The tracer of a daemon: begins contexts, and takes the spans of what has ended.

Without OpenTelemetry, or with nowhere to export to, it is `NO_TRACER`, which passes contexts on.
"""

import random
from collections.abc import Callable, Iterable
from typing import Protocol

from .span import Part, Span
from .span_queue import QueueNumbers, SpanQueue
from .trace_context import TraceContext

Sampler = Callable[[TraceContext | None, int], bool]
"""Whether a trace of this number is recorded, given the context that it came with."""


class Tracer(Protocol):
    """All methods are quick and never raise, so that event loops can call them."""

    def begin(self, parent: TraceContext | None, /) -> TraceContext | None:
        """The context of new work for `parent`, to be passed on with the work."""

    def record(self, span: Span, parts: Iterable[Part] = (), /) -> None:
        """The work has ended, with these parts."""

    def numbers(self) -> QueueNumbers:
        """How many spans wait, were exported, or dropped."""

    def close(self) -> None:
        """Export what waits, for a few seconds at most. Blocks."""


class NoTracer:
    """Records nothing. A context goes through as it came."""

    def begin(self, parent: TraceContext | None, /) -> TraceContext | None:
        """`parent` itself, so that the next span is its child."""
        return parent

    def record(self, span: Span, parts: Iterable[Part] = (), /) -> None:
        """Nothing."""

    def numbers(self) -> QueueNumbers:
        """All 0."""
        return QueueNumbers()

    def close(self) -> None:
        """Nothing."""


NO_TRACER = NoTracer()


class QueueTracer:
    """Draws numbers, and hands what is sampled to a queue."""

    def __init__(
        self,
        queue: SpanQueue,
        sampler: Sampler,
        draw: Callable[[int], int] = random.getrandbits,
    ) -> None:
        """`draw` gives a random number of so many bits."""
        self._queue = queue
        self._sampler = sampler
        self._draw = draw

    def begin(self, parent: TraceContext | None, /) -> TraceContext | None:
        """A span of the same trace as `parent`, or of a new one."""
        trace_id = parent.trace_id if parent is not None else self._number(128)
        return TraceContext(trace_id, self._number(64), self._sampler(parent, trace_id))

    def record(self, span: Span, parts: Iterable[Part] = (), /) -> None:
        """Each part becomes a child of `span`. What is not sampled is not recorded."""
        context = span.context
        if not context.is_sampled:
            return
        self._queue.put(span)
        for part in parts:
            own = TraceContext(context.trace_id, self._number(64), is_sampled=True)
            self._queue.put(
                Span(name=part.name, context=own, parent=context, start=part.start, end=part.end)
            )

    def numbers(self) -> QueueNumbers:
        """See `Tracer`."""
        return self._queue.numbers()

    def close(self) -> None:
        """See `Tracer`."""
        self._queue.close()

    def _number(self, bits: int) -> int:
        return self._draw(bits) or 1
