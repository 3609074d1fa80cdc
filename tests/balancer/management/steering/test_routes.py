from typing import Any

import jsonschema
import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.shared.models.assignments import Reload
from tests.balancer import documents
from tests.balancer.fleet.builders import model_info
from tests.balancer.management.peers import Peer

DOCUMENT: dict[str, Any] = documents.management()
PATH = "/api/v1/desired-state"
MODEL = {"name": "m", "source": "file:///m.gguf", "idle_timeout": "15m"}


async def put(client: TestClient, *models: dict[str, Any], **extra: Any) -> tuple[int, Any, str]:
    response = await client.put(PATH, json={"models": models}, **extra)
    return response.status, await response.json(), response.headers.get("ETag", "")


async def test_what_was_put_is_got(client: TestClient) -> None:
    response = await client.get(PATH)
    assert (await response.json(), response.headers["ETag"]) == ({"models": []}, '"0"')
    status, body, etag = await put(client, MODEL, headers={"If-Match": '"0"'})
    assert (status, etag, body["models"][0]["idle_timeout"]) == (200, '"1"', 900.0)
    response = await client.get(PATH)
    assert (await response.json(), response.headers["ETag"]) == (body, '"1"')
    again = await client.put(PATH, json=body)
    assert (again.status, again.headers["ETag"]) == (200, '"1"')


async def test_a_stale_etag_is_a_conflict(client: TestClient) -> None:
    await put(client, MODEL)
    for params in ({}, {"dry_run": "true"}):
        status, body, _ = await put(client, headers={"If-Match": '"0"'}, params=params)
        assert (status, body["error"]["code"]) == (409, "conflict")
    assert (await put(client, headers={"If-Match": "1"}))[0] == 400
    assert (await put(client, headers={"If-Match": "*"}))[2] == '"2"'


async def test_every_problem_is_answered_with_its_field(client: TestClient) -> None:
    status, body, _ = await put(client, {"name": "a b", "source": "x"}, {"name": "b"})
    assert (status, body["error"]["code"]) == (400, "invalid_request")
    problems = body["error"]["problems"]
    fields = [each["field"] for each in problems]
    assert fields == ["models[0].name", "models[0].source", "models[1].source"]
    assert problems[2]["message"] == "`models[1].source` is missing"


async def test_a_dry_run_says_what_would_change(client: TestClient, runtime: FleetRuntime) -> None:
    Peer(runtime, "a", model=None)
    status, body, _ = await put(client, MODEL, params={"dry_run": "true"})
    assert (status, [(e["action"], e["model"]) for e in body["agents"]]) == (200, [("load", "m")])
    assert (await (await client.get(PATH)).json()) == {"models": []}
    assert body["lacking"] == []
    assert body["desired"]["models"][0]["idle_timeout"] == 900.0
    away = MODEL | {"agents": {"labels": {"gpu": "yes"}}}
    _, body, _ = await put(client, away, params={"dry_run": "true"})
    [lacking] = body["lacking"]
    assert (lacking["name"], lacking["issues"][0]["code"]) == ("m", "no_agent")
    assert (await put(client, MODEL, params={"dry_run": "maybe"}))[0] == 400


async def test_models_wished_for_and_served(client: TestClient, runtime: FleetRuntime) -> None:
    Peer(runtime, "a", model=model_info("served"))
    await put(client, MODEL | {"aliases": ["gpt"], "preload": False})
    body = await (await client.get("/api/v1/models")).json()
    assert body["models"] == [
        {
            "name": "m",
            "aliases": ["gpt"],
            "status": "unloaded",
            "progress": None,
            "agents": [],
            "slots": {"total": 0, "busy": 0},
            "waiting": 0,
            "issues": [],
            "source": "file:///m.gguf",
        },
        {
            "name": "served",
            "aliases": [],
            "status": "loaded",
            "progress": None,
            "agents": ["id-a"],
            "slots": {"total": 2, "busy": 0},
            "waiting": 0,
            "issues": [],
        },
    ]


async def test_an_adapter_has_the_source_that_is_wished_for(client: TestClient) -> None:
    adapter = {"name": "calm", "source": "file:///calm.gguf"}
    await put(client, MODEL | {"adapters": [adapter]})
    models = (await (await client.get("/api/v1/models")).json())["models"]
    sources = {each["name"]: each.get("source") for each in models}
    assert sources == {"m": "file:///m.gguf", "m:calm": "file:///calm.gguf"}


async def test_an_agent_is_drained_and_resumed(client: TestClient, runtime: FleetRuntime) -> None:
    Peer(runtime, "a")
    response = await client.post("/api/v1/agents/id-a/drain", json={"deadline": "30s"})
    assert (response.status, await response.json()) == (200, {"id": "id-a", "state": "drained"})
    agents = await (await client.get("/api/v1/agents")).json()
    assert agents["agents"][0]["state"] == "drained"
    response = await client.post("/api/v1/agents/id-a/resume")
    assert await response.json() == {"id": "id-a", "state": "ready"}


async def test_an_agent_is_told_to_reload(client: TestClient, runtime: FleetRuntime) -> None:
    peer = Peer(runtime, "a")
    assert (await client.post("/api/v1/agents/id-a/reload", json={"deadline": 2})).status == 200
    assert peer.messages[-1] == Reload(drain_timeout=2.0)


@pytest.mark.parametrize("verb", ["drain", "resume", "reload"])
async def test_an_agent_that_is_not_here(client: TestClient, verb: str) -> None:
    response = await client.post(f"/api/v1/agents/nobody/{verb}", json={})
    assert response.status == 404


@pytest.mark.parametrize("body", [{"deadline": -1}, {"deadline": "soon"}, {"dead": 1}])
async def test_a_wrong_drain(client: TestClient, runtime: FleetRuntime, body: object) -> None:
    Peer(runtime, "a")
    response = await client.post("/api/v1/agents/id-a/drain", json=body)
    assert response.status == 400


async def test_a_source_without_tls_is_refused_with_the_flag(client: TestClient) -> None:
    wish = {"models": [{"name": "m", "source": "http://files.lan/m.gguf"}]}
    for path in ("/api/v1/desired-state", "/api/v1/desired-state?dry_run=true"):
        response = await client.put(path, json=wish)
        assert response.status == 400
        error = (await response.json())["error"]
        assert error["field"] == "models[0].source"
        assert "--model-source-http files.lan" in error["message"]


# ---- as described


def schema(path: str, method: str, what: str) -> dict[str, Any]:
    operation = DOCUMENT["paths"][path][method]
    place = operation["requestBody"] if what == "body" else operation["responses"][what]
    found = place["content"]["application/json"]["schema"]
    return {**found, "components": DOCUMENT["components"]}


async def test_what_is_got_is_as_described_and_may_be_put(client: TestClient) -> None:
    wish = {"models": [{"name": "m", "source": "file:///m.gguf", "sampling": {"top_k": 3}}]}
    path = "/api/v1/desired-state"
    jsonschema.validate(wish, schema(path, "put", "body"))
    await client.put(path, json=wish)
    got = await (await client.get(path)).json()
    jsonschema.validate(got, schema(path, "get", "200"))
    jsonschema.validate(got, schema(path, "put", "body"))
