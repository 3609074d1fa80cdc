"""Rates cover the time since the last look, or since the agent connected."""

from arriero.balancer.management.throughput import MIN_SECONDS, Meter, Throughput
from arriero.shared.inference import AgentId
from tests.balancer.management.views import agent_view, fleet_view

A, B = AgentId("id-a"), AgentId("id-b")


def test_the_first_look_is_an_average_since_the_agents_connected() -> None:
    view = fleet_view(
        agent_view("a", num_tokens=100, connected_seconds=10),
        agent_view("b", num_tokens=30, connected_seconds=1),
    )
    assert Meter().look(view, 5.0) == Throughput(total=40.0, agents={A: 10.0, B: 30.0})


def test_later_looks_compare_with_the_one_before() -> None:
    meter = Meter()
    meter.look(fleet_view(agent_view("a", num_tokens=100)), 5.0)
    after = meter.look(fleet_view(agent_view("a", num_tokens=150)), 7.0)
    assert after == Throughput(seconds=2.0, total=25.0, agents={A: 25.0})


def test_a_look_that_comes_too_soon_is_answered_with_the_one_before() -> None:
    meter = Meter()
    first = meter.look(fleet_view(agent_view("a", num_tokens=100)), 5.0)
    soon = fleet_view(agent_view("a", num_tokens=300))
    assert meter.look(soon, 5.0 + MIN_SECONDS / 2) is first
    assert meter.look(soon, 5.0 + MIN_SECONDS).agents == {A: 200 / MIN_SECONDS}


def test_a_newcomer_is_measured_since_it_connected_and_a_leaver_is_forgotten() -> None:
    meter = Meter()
    meter.look(fleet_view(agent_view("a", num_tokens=100)), 0.0)
    newcomer = agent_view("b", num_tokens=8, connected_seconds=0.01)
    assert meter.look(fleet_view(newcomer), 1.0).agents == {B: 8 / MIN_SECONDS}


def test_a_fleet_that_is_silent_has_a_rate_of_zero() -> None:
    meter = Meter()
    idle = fleet_view(agent_view("a", num_tokens=100))
    meter.look(idle, 0.0)
    assert meter.look(idle, 1.0) == Throughput(seconds=1.0, total=0.0, agents={A: 0.0})
