"""The `Recorder` of traces: a span and its parts when a request ends, nothing on the way."""

import time
from collections.abc import Callable, Sequence

from ...shared.tracing.tracer import Tracer
from ..fleet.recorder import Ending, MoveReason, Origin
from .request_spans import parts_of, span_of


class TraceRecorder:
    """`clock` gives nanoseconds since 1970."""

    def __init__(self, tracer: Tracer, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = tracer
        self._clock = clock

    def first_token(self, seconds: float, origin: Origin) -> None:
        """The span of the end has it, too."""

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        """Too many for a trace."""

    def tokens(self, count: int, origin: Origin) -> None:
        """The span of the end has it, too."""

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        """The span of the end has how often, too."""

    def ended(self, ending: Ending) -> None:
        """A request ended: its span, if its trace is recorded."""
        context = ending.caller.trace
        if context is not None and context.is_sampled:
            now = self._clock()
            self._tracer.record(span_of(ending, context, now), parts_of(ending, now))
