"""What a trace shows of a request on its agent."""

from arriero.agent.generation.request_spans import RequestSpans
from arriero.agent.sequence_id import SequenceId
from arriero.shared.errors import EngineFailed, to_wire
from arriero.shared.inference import FinishReason, Rates, RequestId, Usage
from arriero.shared.messages import Ended, Item, Piece, Refused
from arriero.shared.tracing.span import Span
from arriero.shared.tracing.trace_context import TraceContext
from arriero.shared.tracing.tracer import QueueTracer
from tests.shared.tracing.fakes import Kept

PARENT = TraceContext(7, 8, is_sampled=True)
ONE, TWO = SequenceId(1), SequenceId(2)
R = RequestId("r")
SECOND = 10**9


def ended(
    num_tokens: int, rate: float | None, reason: FinishReason = "stop", id: RequestId = R
) -> Ended:
    return Ended(
        id=id,
        finish_reason=reason,
        usage=Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=num_tokens),
        rates=Rates(decode_tokens_per_second=rate),
    )


class Traced:
    """Spans of one agent, by a clock that the test sets in seconds."""

    def __init__(self) -> None:
        self.now = 100
        self.kept = Kept()
        tracer = QueueTracer(self.kept.queue, lambda parent, id: True)
        self.spans = RequestSpans(tracer, "box", lambda: self.now * SECOND)

    def run(self, *items: Item) -> list[Span]:
        """A request that is prepared after 2 s, and ends after 10."""
        self.spans.started(ONE, R, PARENT.traceparent)
        self.now += 2
        self.spans.prepared(ONE)
        self.now += 8
        self.spans.ended(items, [ONE])
        assert len(self.spans) == 0
        return self.kept.take()


def times(spans: list[Span]) -> dict[str, tuple[float, float]]:
    return {span.name: (span.start / SECOND, span.end / SECOND) for span in spans}


def test_its_parts_follow_one_another() -> None:
    spans = Traced().run(Piece(id=R, text="a secret"), ended(12, rate=4.0))
    assert times(spans) == {
        "agent generate": (100, 110),
        "preparation": (100, 102),
        "prefill": (102, 107),
        "decode": (107, 110),
    }
    whole, *parts = spans
    assert (whole.parent, whole.kind, whole.error) == (PARENT, "server", None)
    assert {part.parent for part in parts} == {whole.context}
    assert whole.attributes == {
        "arriero.agent": "box",
        "arriero.code": "stop",
        "arriero.request_id": "r",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.usage.output_tokens": 12,
    }
    assert "secret" not in str(spans)


def test_the_first_token_belongs_to_the_prompt() -> None:
    assert times(Traced().run(ended(13, 4.0, "length")))["decode"] == (107, 110)
    assert "decode" not in times(Traced().run(ended(1, None, "length")))


def test_parts_never_overlap() -> None:
    assert times(Traced().run(ended(4000, 4.0)))["decode"] == (102, 110)


def test_an_error_is_one() -> None:
    whole, *parts = Traced().run(Refused(id=R, error=to_wire(EngineFailed("it said a secret"))))
    assert (whole.error, whole.attributes["error.type"]) == ("engine_failed", "engine_failed")
    assert [part.name for part in parts] == ["preparation", "prefill"]
    assert "secret" not in str(whole)


def test_one_that_nobody_waits_for() -> None:
    whole, *_ = Traced().run(ended(3, 1.0, id=RequestId("another")))
    assert whole.attributes["arriero.code"] == "discarded"


def test_one_that_ended_before_it_was_prepared() -> None:
    traced = Traced()
    traced.spans.started(ONE, R, PARENT.traceparent)
    traced.now += 1
    traced.spans.ended([ended(0, None, "cancelled")], [ONE])
    assert times(traced.kept.take())["preparation"] == (100, 101)


def test_only_what_is_recorded_is_kept() -> None:
    traced = Traced()
    traced.spans.started(ONE, R, None)
    traced.spans.started(TWO, R, TraceContext(7, 8, is_sampled=False).traceparent)
    assert len(traced.spans) == 0
    traced.spans.prepared(ONE)
    traced.spans.ended([ended(1, None)], [ONE, TWO])
    assert traced.kept.take() == []
