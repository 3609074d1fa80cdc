"""What all balancers have, added up."""

from dataclasses import replace

from arriero.balancer.cluster.answers import FleetAnswer
from arriero.balancer.cluster.others import NO_OTHERS, Others, added_up
from arriero.balancer.management.answer_types import Request
from arriero.balancer.management.serializers import request_json, snapshot_json
from arriero.balancer.management.throughput import Throughput
from arriero.shared.inference import AgentId
from tests.balancer.management.views import agent_view, fleet_view, request_view

A, B = AgentId("id-a"), AgentId("id-b")


def request(id: str, age: float) -> Request:
    return request_json(replace(request_view(id), age_seconds=age), None)


def fleet(*requests: Request, busy: int = 1) -> FleetAnswer:
    return FleetAnswer(
        queue_depth=2,
        slots_busy=busy,
        num_requests=3,
        busy={A: busy},
        tokens_per_second=5.0,
        rates={A: 5.0},
        requests=list(requests),
    )


def test_classes_and_totals_of_those_who_tell_them() -> None:
    newer = fleet() | {
        "by_class": {"batch": 2, "default": 1},
        "tokens_total": 30,
        "moves_total": 1,
    }
    told = [("one", newer), ("two", newer), ("of the version before", fleet())]
    others = added_up(told, here="me", at=100.0, limit=9, missing=[])
    view = replace(
        fleet_view(agent_view("a")), waiting_by_class={"batch": 1}, tokens_total=5, moves_total=0
    )
    totals = others.totals(view)
    assert totals.waiting_by_class == {"batch": 5, "default": 2}
    assert (totals.tokens_total, totals.moves_total) == (65, 2)
    whole = snapshot_json(totals, Throughput(), 101.0, {}.get)
    assert whole["queue"]["by_class"] == {"batch": 5, "default": 2}
    assert (whole["tokens_total"], whole["moves_total"]) == (65, 2)


def two(limit: int = 9) -> Others:
    told = [
        ("one", fleet(request("r1", 9.0), request("r3", 7.0))),
        ("two", fleet(request("r2", 8.0), busy=2)),
    ]
    return added_up(told, here="me", at=100.0, limit=limit, missing=["three"])


def test_several_are_added_up() -> None:
    told = two(limit=2)
    sums = {"queue_depth": 4, "slots_busy": 3, "num_requests": 6}
    assert sums.items() <= told.sums.items()
    assert (told.busy, told.rates, told.missing) == ({A: 3}, {A: 10.0}, ("three",))
    assert [(each["id"], each["balancer"]) for each in told.requests] == [
        ("r1", "one"),
        ("r2", "two"),
    ]


def test_a_snapshot_of_all() -> None:
    view = replace(
        fleet_view(agent_view("a", busy=1), agent_view("b"), requests=(request_view("r0"),)),
        queue_depth=1,
    )
    own = snapshot_json(two().totals(view), Throughput(), 101.0, {}.get)
    whole = two().snapshot(own, limit=3)
    assert [agent["slots"]["busy"] for agent in whole["agents"]] == [4, 0]
    assert (whole["queue"]["depth"], whole["slots"]["busy"], whole["num_requests"]) == (5, 4, 7)
    assert [(each["id"], each["balancer"]) for each in whole["requests"]] == [
        ("r1", "one"),
        ("r2", "two"),
        ("r3", "one"),
    ]
    assert [each["age_seconds"] for each in whole["requests"]] == [10.0, 9.0, 8.0]


def test_nobody_elsewhere_changes_nothing() -> None:
    view = fleet_view(agent_view("a", busy=1), requests=(request_view("r0"),))
    own = snapshot_json(view, Throughput(), 101.0, {}.get)
    as_before = snapshot_json(view, Throughput(), 101.0, {}.get)
    assert NO_OTHERS.snapshot(own, limit=3) == as_before
    assert NO_OTHERS.totals(view) == view


def test_totals_and_rates_of_all() -> None:
    totals = two().totals(fleet_view(agent_view("a", busy=1), queue_depth=1))
    assert (totals.queue_depth, totals.slots_busy, totals.num_requests) == (5, 4, 6)
    rates = two().throughput(Throughput(seconds=1.0, total=2.0, agents={A: 1.0, B: 1.0}))
    assert (rates.total, rates.agents) == (12.0, {A: 11.0, B: 1.0})


def test_only_a_waiting_request_goes_on_waiting() -> None:
    waiting = replace(request_view("w"), state="queued")
    told = fleet(request_json(waiting, 1), request("r", 0.0))
    others = added_up([("one", told)], here="me", at=100.0, limit=9, missing=[])
    queued, running = others.with_others([], 102.0, 9)
    assert (queued["waited_seconds"], running["waited_seconds"]) == (2.25, 0.25)
    assert (queued["age_seconds"], running["age_seconds"]) == (3.5, 2.0)


def test_agents_of_which_more_slots_are_taken_or_fewer() -> None:
    before = Others(busy={A: 1, B: 2})
    assert set(Others(busy={A: 1, B: 2}).changed_since(before)) == set()
    assert set(Others(busy={A: 2}).changed_since(before)) == {A, B}
