"""What a balancer answers to others."""

import json
from typing import Any

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.elsewhere.respond import FORGOTTEN, Rates, Responder
from arriero.shared.inference import AgentId, GenerateRequest
from tests.balancer.management.conftest import metrics, runtime
from tests.balancer.management.peers import Peer

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
        told = answer(responder, "requests", states=["queued"], limit=5)
        assert [(each["id"], each["position"]) for each in told["requests"]] == [(queued.id, 1)]
        assert told["total"] == 2
        assert answer(responder, "request", id=queued.id)["requests"][0]["for"] == "slot"
        assert answer(responder, "request", id="nobody")["requests"] == []
        assert responder.respond("metrics", '{"accept":"text/plain"}') == b"text/plain"
        assert answer(responder, "cancel", id="nobody") == {"is_cancelled": False}
        assert answer(responder, "cancel", id=queued.id) == {"is_cancelled": True}
    assert answer(responder, "fleet", limit=9)["requests"] == []


@pytest.mark.parametrize(
    ("what", "about"),
    [
        ("metrics", "[]"),
        ("later", "{}"),
        *((what, "[]") for what in ("fleet", "requests", "request", "cancel")),
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
        assert rates.look().total == 0.0
        peer.generate(running.id, 20)
        now[0] += 2.0
        assert (rates.look().total, rates.look().agents) == (10.0, {AgentId("id-a"): 10.0})
        peer.generate(running.id, 20)
        now[0] += 0.1
        assert rates.look().total == 10.0, "too short ago to measure"
        now[0] += FORGOTTEN + 1
        assert rates.look().total == 0.0, "nobody asked for long"
