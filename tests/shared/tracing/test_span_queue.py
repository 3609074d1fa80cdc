"""The queue of spans: nothing waits for a collector, and what it costs is counted."""

import threading
from collections.abc import Sequence

from arriero.shared.tracing.span import Span
from arriero.shared.tracing.span_queue import MAX_BATCH, MAX_WAITING, QueueNumbers, SpanQueue
from arriero.shared.tracing.trace_context import TraceContext
from tests.waiting import HANGS


def span(number: int) -> Span:
    context = TraceContext(1, number, is_sampled=True)
    return Span(name="s", context=context, parent=None, start=0, end=1)


class Collector:
    """Takes batches while it is `open`; `came` is set with each."""

    def __init__(self, *, answer: bool = True) -> None:
        self.batches: list[int] = []
        self.came = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self._answer = answer

    def __call__(self, spans: Sequence[Span]) -> bool:
        self.came.set()
        assert self.open.wait(HANGS)
        self.batches.append(len(spans))
        return self._answer


def test_what_waits_leaves_with_the_end() -> None:
    collector = Collector()
    queue = SpanQueue(collector)
    for number in range(1, MAX_BATCH + 3):
        queue.put(span(number))
    queue.close(HANGS)
    assert sum(collector.batches) == MAX_BATCH + 2
    assert max(collector.batches) <= MAX_BATCH
    assert queue.numbers() == QueueNumbers(0, MAX_BATCH + 2, 0)


def test_a_slow_collector_costs_spans_and_no_time() -> None:
    collector = Collector()
    collector.open.clear()
    queue = SpanQueue(collector, gathering=0.0)
    queue.put(span(1))
    assert collector.came.wait(HANGS)  # one batch is on its way, and stays there
    for number in range(MAX_WAITING + 5):
        queue.put(span(number + 2))
    assert queue.numbers() == QueueNumbers(MAX_WAITING, 0, 5)
    collector.open.set()
    queue.close(HANGS)
    assert queue.numbers() == QueueNumbers(0, MAX_WAITING + 1, 5)


def test_what_does_not_arrive_is_dropped() -> None:
    queue = SpanQueue(Collector(answer=False), gathering=0.0)
    queue.put(span(1))
    queue.close(HANGS)
    assert queue.numbers() == QueueNumbers(0, 0, 1)


def test_a_collector_that_hangs_does_not_hold_the_end() -> None:
    collector = Collector()
    collector.open.clear()
    queue = SpanQueue(collector, gathering=0.0)
    queue.put(span(1))
    assert collector.came.wait(HANGS)
    queue.close(within=0.01)
    collector.open.set()
