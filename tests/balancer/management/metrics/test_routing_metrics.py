"""How agents were chosen, as series."""

from arriero.balancer.fleet.view import RoutingView
from arriero.balancer.management.metrics.routing_metrics import routing_metrics


def test_each_count_has_its_series() -> None:
    view = RoutingView(
        num_warm=5,
        num_cold=7,
        num_waited=3,
        num_gave_up=1,
        num_evicted=6,
        num_beliefs=99,
        num_cache_keys=4,
        num_fetching=8,
    )
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in routing_metrics(view)
        for sample in family.samples
    }
    assert samples == {
        ("arriero_routed_requests_total", "warm"): 5,
        ("arriero_routed_requests_total", "cold"): 7,
        ("arriero_routing_waits_total", "served"): 2,
        ("arriero_routing_waits_total", "gave_up"): 1,
        ("arriero_routing_beliefs",): 99,
        ("arriero_routing_cache_keys",): 4,
        ("arriero_routing_evictions_total",): 6,
        ("arriero_routing_fetches_total",): 8,
    }
