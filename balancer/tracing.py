"""Makes the trace of a request or query after its end: a span and its parts.

If OpenTelemetry's conventions for generative AI define an attribute, the span uses that name
(https://opentelemetry.io/docs/specs/semconv/gen-ai/). Attributes are numbers and names, never
texts of users.
"""

import time
from collections.abc import Callable, Sequence

from ..shared.inference import Timings
from ..shared.tracing.span import Attribute, Part, Span
from ..shared.tracing.trace_context import TraceContext
from ..shared.tracing.tracer import Tracer
from .fleet.recorder import Ending, MoveReason, Origin

_NANOSECONDS = 1_000_000
"""Nanoseconds in a millisecond."""


def span_of(ending: Ending, context: TraceContext, now: int) -> Span:
    """Return the span of a request that ended at `now`, in nanoseconds since 1970."""
    return Span(
        name=f"{ending.kind} {ending.model}" if ending.model else ending.kind,
        context=context,
        parent=ending.caller.trace_parent,
        start=_start(ending.timings, now),
        end=now,
        kind="server",
        attributes=_attributes(ending),
        error=None if ending.error is None else ending.code,
    )


def parts_of(ending: Ending, now: int) -> list[Part]:
    """Return the phases of a request in order: queue, prefill and decode.

    Returns an empty list for a query. The queue phase is the sum of all waits, even if the request
    returned to the queue.
    """
    if ending.kind != "generate":
        return []
    start, timings = _start(ending.timings, now), ending.timings
    assigned = min(now, start + round(timings.queue_ms * _NANOSECONDS))
    parts = [Part("queue", start, assigned)]
    if ending.agent is None:
        return parts
    if timings.first_token_ms is None:
        return [*parts, Part("prefill", assigned, now)]
    first = min(now, max(assigned, start + round(timings.first_token_ms * _NANOSECONDS)))
    return [*parts, Part("prefill", assigned, first), Part("decode", first, now)]


def _start(timings: Timings, now: int) -> int:
    return now - round(timings.total_ms * _NANOSECONDS)


def _attributes(ending: Ending) -> dict[str, Attribute]:
    usage = ending.usage
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "generate_content" if ending.kind == "generate" else ending.kind,
        "gen_ai.provider.name": "arriero",
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "arriero.code": ending.code,
        "arriero.request_id": ending.request_id,
        "arriero.caller": ending.caller.name,
        "arriero.moves": ending.timings.moves,
    }
    if ending.model:
        attributes["gen_ai.request.model"] = ending.model
    if ending.agent is not None:
        attributes["arriero.agent"] = ending.agent
    if ending.error is not None:
        attributes["error.type"] = ending.code
    elif ending.kind == "generate":
        attributes["gen_ai.response.finish_reasons"] = (ending.code,)
    if ending.kind != "generate":
        attributes["arriero.num_inputs"] = ending.num_inputs
    return attributes


class TraceRecorder:
    """The `Recorder` of traces, which records a request only at its end.

    `clock` returns nanoseconds since 1970.
    """

    def __init__(self, tracer: Tracer, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = tracer
        self._clock = clock

    def first_token(self, seconds: float, origin: Origin) -> None:
        """Ignore the first token, because the final span has its time."""

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        """Ignore the times between tokens. A trace would have too many of them."""

    def tokens(self, count: int, origin: Origin) -> None:
        """Ignore tokens, because the final span has their number."""

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        """Ignore moves, because the final span has their number."""

    def ended(self, ending: Ending) -> None:
        """Record the span of an ended request if the request is traced."""
        context = ending.caller.trace
        if context is not None and context.is_sampled:
            now = self._clock()
            self._tracer.record(span_of(ending, context, now), parts_of(ending, now))
