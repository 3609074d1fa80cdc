"""Files and batches as metrics."""

from prometheus_client import CollectorRegistry, generate_latest

from arriero.balancer.jobs.jobs import JobNumbers
from arriero.balancer.management.metrics.job_collector import JobCollector

NUMBERS = JobNumbers(
    num_files=1,
    num_bytes=2,
    num_uploads=3,
    num_batches=4,
    num_loaded=5,
    num_running=6,
    num_completed=7,
    num_failed=8,
)


def test_each_number_has_its_metric() -> None:
    registry = CollectorRegistry()
    registry.register(JobCollector(lambda: NUMBERS))
    text = generate_latest(registry).decode()
    names = ("files", "files_bytes", "uploads", "batches", "batch_lines_loaded")
    for value, name in enumerate((*names, "batch_lines_running"), start=1):
        assert f"arriero_{name} {value}.0" in text
    assert 'arriero_batch_lines_total{result="output"} 7.0' in text
    assert 'arriero_batch_lines_total{result="error"} 8.0' in text
