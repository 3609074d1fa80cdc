"""The management port as programs see it."""

from importlib.metadata import version
from typing import Any

import jsonschema
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.route import mount
from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.fleet_collector import FleetCollector
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.routes import about_route, workers_of
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.shared.inference import GenerateRequest
from arriero.shared.messages import Issue
from tests.balancer import documents
from tests.balancer.management.apps import Others, management_app
from tests.balancer.management.asking import get
from tests.balancer.management.peers import EagerPeer, Peer
from tests.balancer.openapi_checks import check_whole, routes_in, routes_of

REQUEST = GenerateRequest(prompt="Once")


async def test_health(client: TestClient) -> None:
    assert await get(client, "/health") == (200, {"status": "ok", "store": "ok"})


async def test_metrics_show_the_fleet(
    client: TestClient, runtime: FleetRuntime, hub: EventHub, metrics: Metrics
) -> None:
    collector = FleetCollector(runtime.views.view, backlog=runtime.backlog, events=hub.numbers)
    metrics.registry.register(collector)
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


@pytest.mark.parametrize("path", ["/v1/models", "/api/chat", "/api/v1/tokenize", "/completion"])
async def test_what_is_on_the_other_port_is_said_to_be_there(client: TestClient, path: str) -> None:
    async with client.get(path) as response:
        assert response.status == 404
        message = (await response.json())["error"]["message"]
        assert message == f"{path} is on the inference port (--inference-addr); this is the " + (
            "management port"
        )


async def test_agents_may_dial_here(client: TestClient) -> None:
    async with client.ws_connect("/api/v1/agent-socket") as socket:
        await socket.send_str("junk")
        assert (await socket.receive()).type == WSMsgType.CLOSE


async def test_an_agent_that_another_balancer_may_let_try_again(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, desired_state: DesiredStateService
) -> None:
    others = Others()
    Peer(runtime, "a")
    app = management_app(runtime, hub, metrics, desired_state=desired_state, peers=others)
    async with TestClient(TestServer(app)) as client:
        assert (await client.post("/api/v1/agents/id-a/reload", json={})).status == 200
        assert (await client.post("/api/v1/agents/nobody/reload", json={})).status == 404
    assert others.retried == ["id-a"]


# ---- the document

DOCUMENT: dict[str, Any] = documents.management()


def test_every_route_is_described(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, desired_state: DesiredStateService
) -> None:
    app = management_app(runtime, hub, metrics, desired_state=desired_state)
    assert routes_in(DOCUMENT) == routes_of(app)


def test_the_document_is_whole() -> None:
    check_whole(DOCUMENT, "Arriero, management")


@pytest.mark.parametrize(
    "path", ["/api/v1/agents", "/api/v1/agents/id-a", "/api/v1/requests", "/api/v1/models"]
)
async def test_the_fleet_is_as_described(
    client: TestClient, runtime: FleetRuntime, path: str
) -> None:
    Peer(runtime, "a")
    with runtime.open(REQUEST, caller=ANONYMOUS):
        response = await client.get(path)
        described = DOCUMENT["paths"][path.replace("id-a", "{id}")]["get"]["responses"]["200"]
        schema = described["content"]["application/json"]["schema"]
        schema = schema | {"components": DOCUMENT["components"]}
        jsonschema.Draft202012Validator(schema).validate(await response.json())


async def test_the_inference_port_is_asked_for_each_time() -> None:
    ports = iter([None, 8061])
    app = web.Application()
    mount(
        app, [about_route(lambda: next(ports), "https://llm.example", lambda: (), is_lasting=True)]
    )
    async with TestClient(TestServer(app)) as client:
        answers = [await (await client.get("/api/v1/about")).json() for _ in range(2)]
    assert [each["inference_port"] for each in answers] == [None, 8061]
    assert answers[0] == {
        "version": version("arriero"),
        "inference_port": None,
        "public_url": "https://llm.example",
        "is_lasting": True,
        "issues": [],
    }


async def test_issues_of_the_balancer_itself() -> None:
    app = web.Application()
    issue = Issue(code="certificate_expires", message="soon", hint="renew it")
    mount(app, [about_route(lambda: None, None, lambda: (issue,), is_lasting=False)])
    async with TestClient(TestServer(app)) as client:
        about = await (await client.get("/api/v1/about")).json()
    assert about["public_url"] is None
    assert about["is_lasting"] is False
    assert about["issues"] == [
        {"code": "certificate_expires", "message": "soon", "hint": "renew it", "adapter": None}
    ]


def test_one_process_has_no_workers() -> None:
    assert workers_of(None) is None
