"""The management port as programs see it."""

from typing import Any

import pytest
from aiohttp import WSMsgType
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.routes import management_app
from arriero.balancer.management.steering.keeper import DesiredStateKeeper
from arriero.shared.inference import AgentId, Failed, GenerateRequest
from arriero.shared.messages import Cancel
from tests.balancer.management.elsewhere.others import beside
from tests.balancer.management.peers import EagerPeer, Peer

REQUEST = GenerateRequest(prompt="Once")


async def get(client: TestClient, path: str) -> tuple[int, Any]:
    async with client.get(path) as response:
        assert response.headers["Content-Type"].startswith("application/json")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        return response.status, await response.json()


async def test_health(client: TestClient) -> None:
    assert await get(client, "/health") == (200, {"status": "ok", "store": "ok"})


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


async def test_metrics_show_the_fleet(
    client: TestClient, runtime: FleetRuntime, hub: EventHub, metrics: Metrics
) -> None:
    metrics.collect_fleet(runtime.view, backlog=runtime.backlog, events=hub.numbers)
    Peer(runtime, "a")
    async with client.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain")
        text = await response.text()
    assert 'arriero_slots{agent="a",state="total"} 2.0' in text
    assert "arriero_queue_limit 256.0" in text


async def test_the_playground_streams(client: TestClient, runtime: FleetRuntime) -> None:
    EagerPeer(runtime, "a")
    async with client.post("/api/v1/generate", json={"prompt": "Once"}) as response:
        assert b'"text":"word"' in await response.content.readline()


@pytest.mark.parametrize("path", ["/api/v1/generate_batch", "/v1/chat/completions", "/api"])
async def test_what_is_not_there(client: TestClient, path: str) -> None:
    assert (await get(client, path))[1]["error"]["code"] == "not_found"


async def test_a_wrong_method(client: TestClient) -> None:
    async with client.put("/api/v1/agents") as response:
        assert response.status == 405
        assert "GET" in response.headers["Allow"]
        assert (await response.json())["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/api/v1/events"),
        ("GET", "/api/v1/agent-socket"),
        ("POST", "/api/v1/generate"),
        ("DELETE", "/api/v1/requests/1"),
    ],
)
async def test_pages_of_other_origins_are_refused(
    client: TestClient, method: str, path: str
) -> None:
    headers = {"Origin": "http://elsewhere.example"}
    async with client.request(method, path, headers=headers) as response:
        assert response.status == 403


async def test_agents_may_dial_here(client: TestClient) -> None:
    async with client.ws_connect("/api/v1/agent-socket") as socket:
        await socket.send_str("junk")
        assert (await socket.receive()).type == WSMsgType.CLOSE


async def test_a_request_that_another_balancer_has(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, keeper: DesiredStateKeeper
) -> None:
    there = FleetRuntime(Fleet(Limits()), recorder=metrics)
    Peer(runtime, "a")
    agent = Peer(there, "a")
    everywhere = beside({"there": there, "silent": None})
    app = management_app(runtime, hub, metrics, keeper=keeper, everywhere=everywhere)
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


async def test_an_agent_that_another_balancer_may_let_try_again(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, keeper: DesiredStateKeeper
) -> None:
    told: list[str] = []

    async def retry(agent: AgentId) -> None:
        told.append(agent)

    Peer(runtime, "a")
    app = management_app(runtime, hub, metrics, keeper=keeper, retry_elsewhere=retry)
    async with TestClient(TestServer(app)) as client:
        assert (await client.post("/api/v1/agents/id-a/reload", json={})).status == 200
        assert (await client.post("/api/v1/agents/nobody/reload", json={})).status == 404
    assert told == ["id-a"]
