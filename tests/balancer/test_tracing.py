"""The span of a request: when, what, how much, and never what was said."""

from dataclasses import replace

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.recorder import NOWHERE, Ending
from arriero.balancer.tracing import TraceRecorder, parts_of, span_of
from arriero.shared.errors import AgentLost
from arriero.shared.inference import RequestId, Timings, Usage
from arriero.shared.tracing.span import Part
from arriero.shared.tracing.trace_context import TraceContext
from arriero.shared.tracing.tracer import QueueTracer
from tests.shared.tracing.fakes import Kept

CLIENT = TraceContext(7, 8, is_sampled=True)
OWN = TraceContext(7, 9, is_sampled=True)
MS = 1_000_000
NOW = 10_000 * MS
ENDING = Ending(
    code="stop",
    request_id=RequestId("r"),
    agent="box",
    model="m",
    usage=Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3, reasoning_tokens=1),
    timings=Timings(queue_ms=10, first_token_ms=40, total_ms=100, moves=1),
    caller=Caller(name="team", trace_parent=CLIENT, trace=OWN),
)


def test_the_span_has_the_numbers() -> None:
    span = span_of(ENDING, OWN, NOW)
    assert (span.name, span.kind, span.error) == ("generate m", "server", None)
    assert (span.context, span.parent) == (OWN, CLIENT)
    assert (span.start, span.end) == (NOW - 100 * MS, NOW)
    assert span.attributes == {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.provider.name": "arriero",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("stop",),
        "arriero.agent": "box",
        "arriero.caller": "team",
        "arriero.code": "stop",
        "arriero.moves": 1,
        "arriero.request_id": "r",
    }


def test_its_parts_follow_one_another() -> None:
    start = NOW - 100 * MS
    assert parts_of(ENDING, NOW) == [
        Part("queue", start, start + 10 * MS),
        Part("prefill", start + 10 * MS, start + 40 * MS),
        Part("decode", start + 40 * MS, NOW),
    ]


def test_without_a_token_it_only_read_the_prompt() -> None:
    ending = replace(ENDING, timings=Timings(queue_ms=10, first_token_ms=None, total_ms=100))
    assert [part.name for part in parts_of(ending, NOW)] == ["queue", "prefill"]


def test_without_an_agent_it_only_waited() -> None:
    ending = replace(
        ENDING, agent=None, timings=Timings(queue_ms=100, first_token_ms=None, total_ms=100)
    )
    assert parts_of(ending, NOW) == [Part("queue", NOW - 100 * MS, NOW)]
    assert "arriero.agent" not in span_of(ending, OWN, NOW).attributes


def test_parts_never_leave_the_span() -> None:
    """A request that moved waited again after its first token."""
    ending = replace(ENDING, timings=Timings(queue_ms=90, first_token_ms=40, total_ms=100))
    start = NOW - 100 * MS
    assert parts_of(ending, NOW) == [
        Part("queue", start, start + 90 * MS),
        Part("prefill", start + 90 * MS, start + 90 * MS),
        Part("decode", start + 90 * MS, NOW),
    ]


def test_an_error_is_one() -> None:
    error = AgentLost("the text of an error may name what the client said")
    span = span_of(replace(ENDING, code=error.code, error=error), OWN, NOW)
    assert span.error == "agent_lost"
    assert span.attributes["error.type"] == "agent_lost"
    assert "gen_ai.response.finish_reasons" not in span.attributes
    assert error.message not in str(span)


def test_a_query_is_one_thing() -> None:
    ending = replace(ENDING, code="answered", kind="embed", num_inputs=4, model=None)
    span = span_of(ending, OWN, NOW)
    assert (span.name, parts_of(ending, NOW)) == ("embed", [])
    assert span.attributes["arriero.num_inputs"] == 4
    assert "gen_ai.response.finish_reasons" not in span.attributes


def recorder(kept: Kept) -> TraceRecorder:
    return TraceRecorder(QueueTracer(kept.queue, lambda parent, id: True), lambda: NOW)


def test_an_end_is_a_span_with_its_parts() -> None:
    kept = Kept()
    recorder(kept).ended(ENDING)
    assert [span.name for span in kept.take()] == ["generate m", "queue", "prefill", "decode"]


def test_what_is_not_recorded_costs_nothing() -> None:
    kept = Kept()
    tracing = recorder(kept)
    tracing.ended(replace(ENDING, caller=ANONYMOUS))
    unsampled = replace(OWN, is_sampled=False)
    tracing.ended(replace(ENDING, caller=replace(ENDING.caller, trace=unsampled)))
    tracing.first_token(0.1, NOWHERE)
    tracing.tokens(3, NOWHERE)
    tracing.between_tokens([0.1], NOWHERE)
    assert kept.take() == []
