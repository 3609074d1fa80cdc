"""What is recorded of requests, and of which."""

from dataclasses import replace

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.recorder import NOWHERE
from arriero.balancer.tracing.trace_recorder import TraceRecorder
from arriero.shared.tracing.tracer import QueueTracer
from tests.balancer.tracing.test_request_spans import ENDING, NOW, OWN
from tests.shared.tracing.fakes import Kept


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
