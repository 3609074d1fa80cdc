"""What becomes of the spans of traces, as metrics."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ....shared.tracing.span_queue import QueueNumbers


class SpanCounts(Collector):
    """`numbers` is asked when the metrics are read."""

    def __init__(self, numbers: Callable[[], QueueNumbers]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """How many wait, and a counter by outcome."""
        now = self._numbers()
        yield GaugeMetricFamily(
            "arriero_spans_waiting", "Spans of traces that wait to be exported.", now.num_waiting
        )
        outcomes = CounterMetricFamily(
            "arriero_spans", "Spans of traces, by what became of them.", labels=["outcome"]
        )
        outcomes.add_metric(["exported"], now.num_exported)
        outcomes.add_metric(["dropped"], now.num_dropped)
        yield outcomes
