"""Contexts that are begun, and spans that are recorded."""

from itertools import count

import pytest

from arriero.shared.tracing.span import Part, Span
from arriero.shared.tracing.span_queue import QueueNumbers
from arriero.shared.tracing.trace_context import TraceContext
from arriero.shared.tracing.tracer import NO_TRACER, QueueTracer
from tests.shared.tracing.fakes import Kept

CLIENT = TraceContext(7, 8, is_sampled=False)


def tracer(kept: Kept, *, samples: bool = True) -> QueueTracer:
    numbers = count(1)
    return QueueTracer(kept.queue, lambda parent, trace_id: samples, lambda bits: next(numbers))


@pytest.fixture
def kept() -> Kept:
    return Kept()


def span(context: TraceContext) -> Span:
    return Span(name="whole", context=context, parent=CLIENT, start=1, end=9, kind="server")


def test_a_span_is_in_its_parent_s_trace(kept: Kept) -> None:
    assert tracer(kept).begin(CLIENT) == TraceContext(7, 1, is_sampled=True)


def test_without_a_parent_there_is_a_new_trace(kept: Kept) -> None:
    assert tracer(kept).begin(None) == TraceContext(1, 2, is_sampled=True)


def test_the_sampler_is_told_the_trace() -> None:
    asked: list[tuple[TraceContext | None, int]] = []

    def sampler(parent: TraceContext | None, trace_id: int) -> bool:
        asked.append((parent, trace_id))
        return False

    found = QueueTracer(Kept().queue, sampler, lambda bits: 5).begin(CLIENT)
    assert (found, asked) == (TraceContext(7, 5, is_sampled=False), [(CLIENT, 7)])


def test_no_number_is_zero() -> None:
    found = QueueTracer(Kept().queue, lambda parent, id: True, lambda bits: 0).begin(None)
    assert found == TraceContext(1, 1, is_sampled=True)


def test_parts_are_children(kept: Kept) -> None:
    whole = TraceContext(7, 100, is_sampled=True)
    tracer(kept).record(span(whole), [Part("a", 1, 4), Part("b", 4, 9)])
    first, *parts = kept.take()
    assert first == span(whole)
    assert [(each.name, each.start, each.end) for each in parts] == [("a", 1, 4), ("b", 4, 9)]
    assert {each.parent for each in parts} == {whole}
    assert len({each.context.span_id for each in parts}) == 2


def test_what_is_not_sampled_is_not_recorded(kept: Kept) -> None:
    tracer(kept).record(span(TraceContext(7, 100, is_sampled=False)), [Part("a", 1, 4)])
    assert kept.take() == []


def test_without_a_tracer_a_context_goes_through() -> None:
    assert NO_TRACER.begin(CLIENT) == CLIENT
    assert NO_TRACER.begin(None) is None
    NO_TRACER.record(span(CLIENT))
    NO_TRACER.close()
    assert NO_TRACER.numbers() == QueueNumbers()
