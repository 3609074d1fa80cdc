"""A Prometheus histogram that observes many durations with one look-up each."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Durations:
    """Counts of durations by bucket. `bounds` are the buckets' maxima in seconds, ascending."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    @classmethod
    def sum(cls, several: Iterable["Durations"], bounds: Sequence[float]) -> "Durations":
        """Return the sum of `several`, which must have the same `bounds`."""
        total = cls(bounds)
        for each in several:
            total._counts = [a + b for a, b in zip(total._counts, each._counts, strict=True)]
            total._sum += each._sum
        return total

    def observe(self, durations: Sequence[float]) -> None:
        """Count durations."""
        counts, bounds = self._counts, self._bounds
        for duration in durations:
            counts[bisect_left(bounds, duration)] += 1
        self._sum += sum(durations)

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add the cumulative buckets to `family` as samples."""
        names = [_named(bound) for bound in (*self._bounds, float("inf"))]
        buckets = [*zip(names, accumulate(self._counts), strict=True)]
        family.add_metric(labels, buckets=buckets, sum_value=self._sum)


class GapHistogram(Collector):
    """One histogram without labels."""

    def __init__(self, name: str, help_text: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._help_text = help_text
        self._durations = Durations(bounds)
        self.observe = self._durations.observe

    def collect(self) -> Iterator[Metric]:
        """Return the buckets of the histogram."""
        family = HistogramMetricFamily(self._name, self._help_text)
        self._durations.add_to(family, [])
        yield family


def _named(bound: float) -> str:
    name: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return name
