"""Agents and requests as operators see them."""

import time

from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.shared.inference import Failed, GenerateRequest
from arriero.shared.messages import Cancel
from arriero.shared.reports.statistics import DeviceMemory, Statistics
from tests.balancer.cluster.beside import beside
from tests.balancer.management.apps import management_app
from tests.balancer.management.asking import get
from tests.balancer.management.peers import Peer

REQUEST = GenerateRequest(prompt="Once")


async def test_agents(client: TestClient, runtime: FleetRuntime) -> None:
    assert await get(client, "/api/v1/agents") == (200, {"agents": []})
    Peer(runtime, "a")
    Peer(runtime, "b")
    _, body = await get(client, "/api/v1/agents")
    assert [(agent["id"], agent["name"]) for agent in body["agents"]] == [
        ("id-a", "a"),
        ("id-b", "b"),
    ]
    assert body["agents"][0].keys() >= {"labels", "version", "state", "slots", "model", "issues"}
    assert body["agents"][0].keys() >= {"download", "throughput"}


async def test_one_agent(client: TestClient, runtime: FleetRuntime) -> None:
    Peer(runtime, "a", slots=3)
    status, body = await get(client, "/api/v1/agents/id-a")
    assert (status, body["slots"]) == (200, {"total": 3, "busy": 0})
    status, body = await get(client, "/api/v1/agents/nobody")
    assert (status, body["error"]["code"]) == (404, "not_found")
    assert "nobody" in body["error"]["message"]


async def test_the_past_of_an_agents_devices(client: TestClient, runtime: FleetRuntime) -> None:
    peer = Peer(runtime, "a")
    assert await get(client, "/api/v1/agents/id-a/devices") == (200, {"step": 5.0, "devices": []})
    host = DeviceMemory(name="CPU", kind="cpu", total=100, free=40, use=0.25)
    peer.says(Statistics(devices=(host,)))
    _, body = await get(client, "/api/v1/agents/id-a/devices")
    [device] = body["devices"]
    [at] = device.pop("times")
    assert abs(at - time.time()) < 60
    assert device == {
        "name": "CPU",
        "kind": "cpu",
        "memory_used": [60],
        "use": [0.25],
        "temperature": [None],
    }
    status, body = await get(client, "/api/v1/agents/nobody/devices")
    assert (status, body["error"]["code"]) == (404, "not_found")


async def test_requests_and_cancelling_them(client: TestClient, runtime: FleetRuntime) -> None:
    peer = Peer(runtime, "a", slots=1)
    with (
        runtime.open(REQUEST, caller=ANONYMOUS) as running,
        runtime.open(REQUEST, caller=ANONYMOUS) as queued,
    ):
        _, body = await get(client, "/api/v1/requests")
        assert [(each["id"], each["state"]) for each in body["requests"]] == [
            (running.id, "assigned"),
            (queued.id, "queued"),
        ]
        async with client.delete(f"/api/v1/requests/{queued.id}") as response:
            assert response.status == 202
            assert await response.json() == {"id": queued.id}
        (end,) = [event async for event in queued]
        assert isinstance(end, Failed)
        assert end.error.code == "cancelled"
        async with client.delete(f"/api/v1/requests/{queued.id}") as response:
            assert response.status == 404
            assert queued.id in (await response.json())["error"]["message"]
        async with client.delete(f"/api/v1/requests/{running.id}") as response:
            assert response.status == 202
        assert Cancel(id=running.id) in peer.messages


async def test_what_a_waiting_request_can_expect(client: TestClient, runtime: FleetRuntime) -> None:
    Peer(runtime, "a", slots=1)
    with (
        runtime.open(REQUEST, caller=ANONYMOUS) as running,
        runtime.open(REQUEST, caller=ANONYMOUS) as queued,
    ):
        _, body = await get(client, "/api/v1/requests")
        listed = {each["id"]: each for each in body["requests"]}
        told = ("position", "for", "seconds_left", "expected_start")
        assert [listed[running.id][name] for name in told] == [None] * 4
        assert [listed[queued.id][name] for name in told[:2]] == [1, "slot"]
        status, one = await get(client, f"/api/v1/requests/{queued.id}")
        assert (status, one["position"], one["state"]) == (200, 1, "queued")
        status, body = await get(client, "/api/v1/requests/nobody")
        assert (status, body["error"]["code"]) == (404, "not_found")
        assert "nobody" in body["error"]["message"]


async def test_requests_by_state_and_their_number(
    client: TestClient, runtime: FleetRuntime
) -> None:
    Peer(runtime, "a", slots=1)
    with runtime.open(REQUEST, caller=ANONYMOUS), runtime.open(REQUEST, caller=ANONYMOUS) as queued:
        _, body = await get(client, "/api/v1/requests?state=queued")
        assert [each["id"] for each in body["requests"]] == [queued.id]
        assert body["total"] == 2
        status, body = await get(client, "/api/v1/requests?limit=many")
        assert (status, body["error"]["code"], body["error"]["field"]) == (
            400,
            "invalid_request",
            "limit",
        )


async def test_a_request_that_another_balancer_has(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, desired_state: DesiredStateService
) -> None:
    there = FleetRuntime(Fleet(Limits()), recorder=metrics)
    Peer(runtime, "a")
    agent = Peer(there, "a")
    cluster = beside({"there": there, "silent": None})
    app = management_app(runtime, hub, metrics, desired_state=desired_state, cluster=cluster)
    async with TestClient(TestServer(app)) as client:
        with (
            there.open(REQUEST, caller=ANONYMOUS) as theirs,
            runtime.open(REQUEST, caller=ANONYMOUS) as ours,
        ):
            _, body = await get(client, "/api/v1/requests")
            assert {each["id"]: each["balancer"] for each in body["requests"]} == {
                theirs.id: "there",
                ours.id: "here",
            }
            assert (body["total"], body["missing"]) == (2, ["silent"])
            _, body = await get(client, "/api/v1/agents")
            assert body["agents"][0]["slots"] == {"total": 2, "busy": 2}
            assert body["missing"] == ["silent"]
            assert (await get(client, "/api/v1/agents/id-a"))[1]["slots"]["busy"] == 2
            path = f"/api/v1/requests/{theirs.id}"
            assert (await get(client, path))[1]["balancer"] == "there"
            assert (await client.delete(path)).status == 202
            assert Cancel(id=theirs.id) in agent.messages
        status, body = await get(client, "/api/v1/requests/nobodys")
        assert (status, body["error"]["message"].endswith("no answer came from silent")) == (
            404,
            True,
        )
