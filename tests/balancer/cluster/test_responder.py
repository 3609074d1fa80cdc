"""What a balancer answers to others."""

import json
from typing import Any

import pytest

from arriero.balancer.cluster.responder import FORGOTTEN, Rates, Responder
from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.history.history_task import HistoryTask
from arriero.balancer.store.history_writer import HistoryWriter
from arriero.shared.inference import AgentId, GenerateRequest
from tests.balancer.fleet.recording import ManualClock
from tests.balancer.history.builders import TOTALS, ending
from tests.balancer.management.conftest import metrics, runtime
from tests.balancer.management.peers import Peer
from tests.balancer.store.fakes import FakeStore

pytestmark = pytest.mark.usefixtures("closes_stores")

__all__ = ["metrics", "runtime"]

REQUEST = GenerateRequest(prompt="Once")


def answer(responder: Responder, what: str, **about: Any) -> Any:
    body = responder.respond(what, json.dumps(about))
    assert body is not None
    return json.loads(body)


async def test_its_fleet_and_its_requests(runtime: FleetRuntime) -> None:
    responder = Responder(runtime, lambda accept: (accept.encode(), ""), wall_clock=lambda: 0.0)
    Peer(runtime, "a", slots=1)
    Peer(runtime, "b", slots=1, model=None)
    with (
        runtime.open(REQUEST, caller=ANONYMOUS) as running,
        runtime.open(REQUEST, caller=ANONYMOUS) as queued,
    ):
        told = answer(responder, "fleet", limit=1)
        assert told["busy"] == {"id-a": 1}
        assert (told["queue_depth"], told["slots_busy"], told["num_requests"]) == (1, 1, 2)
        assert [each["id"] for each in told["requests"]] == [running.id]
        assert (told["by_class"]["default"], told["tokens_total"], told["moves_total"]) == (1, 0, 0)
        told = answer(responder, "requests", states=["queued"], limit=5)
        assert [(each["id"], each["position"]) for each in told["requests"]] == [(queued.id, 1)]
        assert told["total"] == 2
        assert answer(responder, "request", id=queued.id)["requests"][0]["for"] == "slot"
        assert answer(responder, "request", id="nobody")["requests"] == []
        assert responder.respond("metrics", '{"accept":"text/plain"}') == b"text/plain"
        assert answer(responder, "cancel", id="nobody") == {"is_cancelled": False}
        assert answer(responder, "cancel", id=queued.id) == {"is_cancelled": True}
    assert answer(responder, "fleet", limit=9)["requests"] == []


async def test_what_its_store_does_not_have_yet(runtime: FleetRuntime) -> None:
    clock = ManualClock(1000.0)
    history = HistoryTask(clock=clock)
    responder = Responder(runtime, history=history)
    history.recorder.ended(ending("a"))
    history.recorder.ended(ending("b", "length"))
    for _ in range(2):
        clock.now += 1
        history.tick(TOTALS)
    told = answer(responder, "ended", code="length", limit=5)
    assert ([each["id"] for each in told["requests"]], told["total"]) == (["b"], 2)
    told = answer(responder, "ended", before=[1000.0, "a"], limit=1)
    assert [each["id"] for each in told["requests"]] == ["b"]
    told = answer(responder, "history", since=1001)
    assert (told["source"], [each["at"] for each in told["steps"]]) == (history.run_id, [1001])
    history.write(HistoryWriter(FakeStore()))
    assert answer(responder, "ended")["requests"] == []
    assert answer(responder, "history", since=0)["steps"] == []


@pytest.mark.parametrize(
    ("what", "about"),
    [
        ("metrics", "[]"),
        ("later", "{}"),
        *((what, "[]") for what in ("fleet", "requests", "request", "cancel")),
        *((what, "[]") for what in ("ended", "history")),
    ],
)
async def test_what_it_does_not_understand(runtime: FleetRuntime, what: str, about: str) -> None:
    assert Responder(runtime).respond(what, about) is None


async def test_rates_are_of_the_time_between_two_looks(runtime: FleetRuntime) -> None:
    now = [100.0]
    rates = Rates(runtime, lambda: now[0])
    peer = Peer(runtime, "a")
    with runtime.open(REQUEST, caller=ANONYMOUS) as running:
        peer.generate(running.id, 50)
        assert rates.measure().total == 0.0
        peer.generate(running.id, 20)
        now[0] += 2.0
        assert (rates.measure().total, rates.measure().agents) == (10.0, {AgentId("id-a"): 10.0})
        peer.generate(running.id, 20)
        now[0] += 0.1
        assert rates.measure().total == 10.0, "too short ago to measure"
        now[0] += FORGOTTEN + 1
        assert rates.measure().total == 0.0, "nobody asked for long"
