"""How agents are chosen, as Prometheus counters."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...fleet.view import RoutingView


def routing_metrics(view: RoutingView) -> Iterator[Metric]:
    """Totals since the balancer started."""
    routed = CounterMetricFamily(
        "arriero_routed_requests",
        "Requests that agents were given: warm where the agent was believed to hold at least half "
        "of the prompt in its cache.",
        labels=["prefix"],
    )
    routed.add_metric(["warm"], view.num_warm)
    routed.add_metric(["cold"], view.num_cold)
    yield routed
    waits = CounterMetricFamily(
        "arriero_routing_waits",
        "Requests that waited for the agent that holds their prompt: it served them, or another "
        "did when waiting no longer paid.",
        labels=["outcome"],
    )
    waits.add_metric(["served"], view.num_waited - view.num_gave_up)
    waits.add_metric(["gave_up"], view.num_gave_up)
    yield waits
    yield GaugeMetricFamily(
        "arriero_routing_beliefs",
        "Beginnings of prompts that are remembered, counted for each agent that computed them.",
        value=view.num_beliefs,
    )
    yield CounterMetricFamily(
        "arriero_routing_evictions",
        "Remembered beginnings of prompts that their agents said they do not hold any more.",
        value=view.num_evicted,
    )
    yield CounterMetricFamily(
        "arriero_routing_fetches",
        "Requests whose agents were told to fetch a prefix from another agent.",
        value=view.num_fetching,
    )
    yield GaugeMetricFamily(
        "arriero_routing_cache_keys",
        "Cache keys of callers for which the agent of their last request is remembered.",
        value=view.num_cache_keys,
    )
