"""The fleet's gauges follow the view that is there at the scrape."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from arriero.balancer.fleet.runtime.outbox import AgentBacklog
from arriero.balancer.fleet.view import FleetView, RoutingView
from arriero.balancer.management.metrics.figure_metrics import figure_metrics
from arriero.balancer.management.metrics.fleet_collector import (
    MAX_CODES,
    EventNumbers,
    FleetCollector,
)
from arriero.shared.messages import Issue
from tests.balancer.management.views import agent_view, fleet_view


class Scraped:
    """A registry over a view that a test may change."""

    def __init__(self, view: FleetView) -> None:
        self.view = view
        self.registry = CollectorRegistry()
        self.registry.register(
            FleetCollector(
                lambda: self.view,
                backlog=lambda: AgentBacklog(7, 4096),
                events=lambda: EventNumbers(2, 500, 90),
                desired=lambda: ["loaded", "failed", "loaded"],
            )
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def test_the_queue_and_who_watches() -> None:
    scraped = Scraped(fleet_view(queue_depth=3))
    assert scraped.value("arriero_queue_depth") == 3
    assert scraped.value("arriero_queue_limit") == 256
    assert scraped.value("arriero_draining") == 0
    assert scraped.value("arriero_event_subscribers") == 2
    assert scraped.value("arriero_event_history_bytes") == 500
    assert scraped.value("arriero_event_bytes_behind") == 90


def test_desired_models_by_status() -> None:
    scraped = Scraped(fleet_view())
    numbers = [
        scraped.value("arriero_desired_models", status=each)
        for each in ("loaded", "failed", "waiting")
    ]
    assert numbers == [2, 1, 0]


def test_what_waits_on_the_way_to_agents() -> None:
    scraped = Scraped(fleet_view())
    assert scraped.value("arriero_agent_messages_waiting") == 7
    assert scraped.value("arriero_agent_transfer_bytes") == 4096


def test_the_parts_of_queries() -> None:
    scraped = Scraped(replace(fleet_view(), parts_waiting=5, parts_asked=2))
    assert scraped.value("arriero_query_parts_waiting") == 5
    assert scraped.value("arriero_query_parts_asked") == 2


def test_models_that_are_here_and_models_that_are_only_remembered() -> None:
    scraped = Scraped(replace(fleet_view(), num_models=5, num_models_unloaded=2))
    assert scraped.value("arriero_models", state="here") == 3
    assert scraped.value("arriero_models", state="remembered") == 2


def test_what_came_too_late() -> None:
    scraped = Scraped(replace(fleet_view(), items_ignored=3, bad_messages=2))
    assert scraped.value("arriero_items_ignored_total") == 3
    assert scraped.value("arriero_bad_messages_total") == 2


def test_slots_of_an_agent_vanish_with_it() -> None:
    scraped = Scraped(fleet_view(agent_view("a", busy=1), agent_view("b")))
    assert scraped.value("arriero_slots", agent="a", state="total") == 4
    assert scraped.value("arriero_slots", agent="a", state="busy") == 1
    scraped.view = fleet_view(agent_view("b"))
    assert scraped.value("arriero_slots", agent="a", state="total") is None
    assert scraped.value("arriero_slots", agent="b", state="total") == 4


def test_agents_of_one_name_are_added_up() -> None:
    twins = fleet_view(agent_view("a", id="1", busy=1), agent_view("a", id="2", busy=3))
    scraped = Scraped(twins)
    assert scraped.value("arriero_slots", agent="a", state="total") == 8
    assert scraped.value("arriero_slots", agent="a", state="busy") == 4


def test_agents_by_state_include_the_states_that_nobody_is_in() -> None:
    scraped = Scraped(fleet_view(agent_view("a"), agent_view("b", model=None)))
    assert scraped.value("arriero_agents", state="ready") == 1
    assert scraped.value("arriero_agents", state="idle") == 1
    assert scraped.value("arriero_agents", state="draining") == 0


@pytest.mark.parametrize("name", ['quote"', "back\\slash", "new\nline", "} 1"])
def test_any_name_is_a_label(name: str) -> None:
    assert (
        Scraped(fleet_view(agent_view(name))).value("arriero_slots", agent=name, state="total") == 4
    )


def test_issues_are_counted_by_code_and_codes_are_bounded() -> None:
    def issue(code: str) -> Issue:
        return Issue(code=code, message="…")

    full = agent_view("a", issues=(issue("disk_full"), issue("denied")))
    odd = [agent_view(f"b{n}", issues=(issue(f"odd{n}"),)) for n in range(MAX_CODES)]
    more = agent_view("c", issues=(issue("disk_full"), issue("denied")))
    scraped = Scraped(replace(fleet_view(), agents=(full, *odd, more)))
    assert scraped.value("arriero_issues", code="disk_full") == 2
    assert scraped.value("arriero_issues", code="other") == 2


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
        for family in figure_metrics(RoutingView, {(): [view]})
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
