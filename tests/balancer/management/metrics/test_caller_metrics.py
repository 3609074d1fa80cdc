"""Who used how much, for a bounded number of names."""

from dataclasses import replace

from prometheus_client import CollectorRegistry

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.management.metrics.caller_metrics import CallerMetrics
from tests.balancer.history.builders import ending


def test_callers_are_told_apart_up_to_a_number() -> None:
    registry = CollectorRegistry()
    metrics = CallerMetrics(registry, max_callers=2)
    one = ending("r")
    for name in ("ana", "ben", "ana", "cleo", "dora"):
        metrics.ended(replace(one, caller=Caller(name)))
    requests = {
        name: registry.get_sample_value("arriero_caller_requests_total", {"caller": name})
        for name in ("ana", "ben", "cleo", "other")
    }
    assert requests == {"ana": 2, "ben": 1, "cleo": None, "other": 2}
    labels = {"caller": "ana", "kind": "completion"}
    tokens = registry.get_sample_value("arriero_caller_tokens_total", labels)
    assert tokens == 2 * one.usage.completion_tokens
