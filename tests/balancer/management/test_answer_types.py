"""Every answer that the fleet can give is one of the declared types."""

from pydantic import TypeAdapter

from arriero.balancer.management import answer_types
from arriero.balancer.management.fleet_feed import FleetFeed
from arriero.balancer.management.serializers import dumps, snapshot_json, throughput_json
from arriero.balancer.management.throughput import Throughput
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import Issue
from arriero.shared.reports.statistics import Statistics
from tests.balancer.management.views import agent_view, delta_of, fleet_view, request_view

BUSY = agent_view("a", issues=(Issue(code="x", message="y"),), statistics=Statistics())
VIEW = fleet_view(BUSY, agent_view("b", model=None), requests=(request_view("r"),))
PLACES = {RequestId("r"): 1}
RATES = Throughput(seconds=1.0, total=2.0, agents={AgentId("id-a"): 2.0})


def test_a_snapshot() -> None:
    body = dumps(snapshot_json(VIEW, RATES, 0.0, PLACES.get))
    TypeAdapter(answer_types.Snapshot).validate_json(body, extra="forbid")


def test_a_delta() -> None:
    delta = FleetFeed().advance(delta_of(VIEW), VIEW.requests, RATES, 0.0, PLACES.get)
    TypeAdapter(answer_types.Delta).validate_json(dumps(delta), extra="forbid")


def test_a_point() -> None:
    body = dumps(throughput_json(VIEW, RATES))
    TypeAdapter(answer_types.ThroughputPoint).validate_json(body, extra="forbid")
