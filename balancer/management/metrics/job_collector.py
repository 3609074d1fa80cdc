"""Files and batches as Prometheus metrics, read when somebody asks."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...jobs.jobs import JobNumbers


class JobCollector(Collector):
    """`numbers` costs the same however much there is."""

    def __init__(self, numbers: Callable[[], JobNumbers]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        numbers = self._numbers()
        yield _gauge("files", "Files that are kept.", numbers.num_files)
        yield _gauge("files_bytes", "Bytes of the files that are kept.", numbers.num_bytes)
        yield _gauge("uploads", "Files that are being uploaded.", numbers.num_uploads)
        yield _gauge("batches", "Batches that this balancer runs.", numbers.num_batches)
        yield _gauge(
            "batch_lines_loaded", "Lines of batches in memory, running or not.", numbers.num_loaded
        )
        yield _gauge("batch_lines_running", "Lines of batches that run.", numbers.num_running)
        lines = CounterMetricFamily(
            "arriero_batch_lines", "Lines of batches that got a result.", labels=["result"]
        )
        lines.add_metric(["output"], numbers.num_completed)
        lines.add_metric(["error"], numbers.num_failed)
        yield lines


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(f"arriero_{name}", words, value=value)
