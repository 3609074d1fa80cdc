"""Spans as metrics."""

from prometheus_client import CollectorRegistry, generate_latest

from arriero.balancer.management.metrics.span_counts import SpanCounts
from arriero.shared.tracing.span_queue import QueueNumbers


def test_what_waits_was_exported_and_was_dropped() -> None:
    registry = CollectorRegistry()
    registry.register(SpanCounts(lambda: QueueNumbers(3, 5, 7)))
    text = generate_latest(registry).decode()
    assert "arriero_spans_waiting 3.0" in text
    assert 'arriero_spans_total{outcome="exported"} 5.0' in text
    assert 'arriero_spans_total{outcome="dropped"} 7.0' in text
