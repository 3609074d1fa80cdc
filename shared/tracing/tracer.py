"""A daemon's tracer: creates the contexts of spans, and records spans that have ended.

Without OpenTelemetry, or without an endpoint for the export, the tracer is `NO_TRACER`, which
passes contexts on.
"""

import random
from collections.abc import Callable, Iterable
from typing import Protocol

from .span import Part, Span
from .span_queue import QueueNumbers, SpanQueue
from .trace_context import TraceContext

Sampler = Callable[[TraceContext | None, int], bool]
"""Whether to record the trace with this id, given the parent context of the request."""


class Tracer(Protocol):
    """Creates contexts and records spans. All methods are quick and never raise."""

    def begin(self, parent: TraceContext | None, /) -> TraceContext | None:
        """Return the context of a new operation for `parent`; pass it on with the request."""

    def record(self, span: Span, parts: Iterable[Part] = (), /) -> None:
        """Record the span of an operation that has ended, with its parts."""

    def numbers(self) -> QueueNumbers:
        """Return how many spans wait, were exported, or were dropped."""

    def close(self) -> None:
        """Export the waiting spans, for a few seconds at most. Blocks."""


class NoTracer:
    """Records nothing, and passes contexts on unchanged."""

    def begin(self, parent: TraceContext | None, /) -> TraceContext | None:
        """Return `parent` itself, so that the next span is its child."""
        return parent

    def record(self, span: Span, parts: Iterable[Part] = (), /) -> None:
        """Do nothing."""

    def numbers(self) -> QueueNumbers:
        """Return zeros."""
        return QueueNumbers()

    def close(self) -> None:
        """Do nothing."""


NO_TRACER = NoTracer()


class QueueTracer:
    """Draws ids, and puts the spans of sampled traces into a queue."""

    def __init__(
        self,
        queue: SpanQueue,
        sampler: Sampler,
        draw: Callable[[int], int] = random.getrandbits,
    ) -> None:
        """`draw` returns a random number of the given number of bits."""
        self._queue = queue
        self._sampler = sampler
        self._draw = draw

    def begin(self, parent: TraceContext | None, /) -> TraceContext | None:
        """Return a new span of the trace of `parent`, or of a new trace."""
        trace_id = parent.trace_id if parent is not None else self._number(128)
        return TraceContext(trace_id, self._number(64), self._sampler(parent, trace_id))

    def record(self, span: Span, parts: Iterable[Part] = (), /) -> None:
        """Queue `span` with a child for each part, unless the trace is not sampled."""
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
        """Return how many spans wait, were exported, or were dropped."""
        return self._queue.numbers()

    def close(self) -> None:
        """Export the waiting spans, for a few seconds at most. Blocks."""
        self._queue.close()

    def _number(self, bits: int) -> int:
        return self._draw(bits) or 1
