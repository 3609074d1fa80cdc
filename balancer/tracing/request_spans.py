"""The span of a request or a query, and its parts, from the record of its end.

Attributes have the names of OpenTelemetry's conventions for generative AI where those have one
(https://opentelemetry.io/docs/specs/semconv/gen-ai/). Numbers and names only, never any text.
"""

from ...shared.inference import Timings
from ...shared.tracing.span import Attribute, Part, Span
from ...shared.tracing.trace_context import TraceContext
from ..fleet.recorder import Ending

_NANOSECONDS = 1_000_000
"""In a millisecond."""


def span_of(ending: Ending, context: TraceContext, now: int) -> Span:
    """The span of what ended `now`, in nanoseconds since 1970."""
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
    """What it waited and computed, one after the other; a query is only one thing.

    The time in the queue is all of it, also where the request went back there.
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
