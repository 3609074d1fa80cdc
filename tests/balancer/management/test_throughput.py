"""Rates cover the time since the last look, or since the agent connected."""

import pytest

from arriero.balancer.management import throughput
from arriero.balancer.management.throughput import MIN_SECONDS, AgentRates, Meter, Throughput
from arriero.shared.inference import AgentId
from tests.balancer.management.views import agent_view

A, B = AgentId("id-a"), AgentId("id-b")


class TestTheFleet:
    def test_looks_compare_with_the_one_before(self) -> None:
        meter = Meter([agent_view("a", num_tokens=100)], 100, 5.0)
        after = meter.measure([(A, 150)], (), 150, 7.0)
        assert after == Throughput(seconds=2.0, total=25.0, agents={A: 25.0})
        after = meter.measure([(A, 160)], (), 160, 8.0)
        assert after.agents == {A: 10.0}

    def test_agents_that_did_not_change_are_left_out_and_count_as_zero(self) -> None:
        meter = Meter([agent_view("a", num_tokens=100), agent_view("b")], 100, 0.0)
        after = meter.measure([(B, 0)], (), 100, 1.0)
        assert after == Throughput(seconds=1.0, total=0.0, agents={})
        assert after.rate_of(A) == 0.0

    def test_nothing_is_known_before_the_first_look(self) -> None:
        assert Throughput().rate_of(A) is None

    def test_a_newcomer_counts_from_zero(self) -> None:
        meter = Meter([], 0, 0.0)
        assert meter.measure([(B, 8)], (), 8, 2.0).agents == {B: 4.0}

    def test_one_that_left_and_came_back_counts_from_zero(self) -> None:
        meter = Meter([agent_view("a", num_tokens=100)], 100, 0.0)
        assert meter.measure([(A, 8)], (), 108, 1.0).agents == {A: 8.0}
        meter.measure([], [A], 108, 2.0)
        assert meter.measure([(A, 9)], (), 117, 3.0).agents == {A: 9.0}

    def test_a_look_that_comes_soon_covers_the_shortest_time(self) -> None:
        meter = Meter([], 0, 0.0)
        assert meter.measure([], (), 10, 0.01).total == 10 / MIN_SECONDS


class TestSingleAgents:
    def test_the_first_look_is_an_average_since_the_agent_connected(self) -> None:
        agent = agent_view("a", num_tokens=100, connected_seconds=10)
        assert AgentRates().rate(agent, 5.0) == 10.0

    def test_later_looks_compare_with_the_one_before(self) -> None:
        rates = AgentRates()
        rates.rate(agent_view("a", num_tokens=100), 5.0)
        assert rates.rate(agent_view("a", num_tokens=150), 7.0) == 25.0

    def test_a_look_that_comes_too_soon_is_answered_with_the_one_before(self) -> None:
        rates = AgentRates()
        first = rates.rate(agent_view("a", num_tokens=100), 5.0)
        soon = agent_view("a", num_tokens=300)
        assert rates.rate(soon, 5.0 + MIN_SECONDS / 2) == first
        assert rates.rate(soon, 5.0 + MIN_SECONDS) == 200 / MIN_SECONDS

    def test_those_that_nobody_asks_about_are_forgotten(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(throughput, "MAX_RATES", 2)
        rates = AgentRates()
        for name in ("a", "b", "a", "c"):
            rates.rate(agent_view(name, num_tokens=100), 0.0)
        assert rates.rate(agent_view("a", num_tokens=120), 10.0) == 2.0
        assert rates.rate(agent_view("b", num_tokens=120), 10.0) == 12.0
