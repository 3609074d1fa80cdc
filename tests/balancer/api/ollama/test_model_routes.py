"""Ollama's calls about models and embeddings over a fake fleet runtime."""

import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.queries import DescribeTokenizer, Embed, Embedded, Result, TokenizerDescription
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.balancer.api.ollama.test_embeddings import vector


def answers(query_request: QueryRequest) -> tuple[Result, ...]:
    assert query_request.model == "demo"
    match query_request.parts:
        case (DescribeTokenizer(),):
            return (TokenizerDescription(chat_template="{{ tools }}"),)
        case (Embed(),):
            return (Embedded(vectors=(vector(1.0, 0.5),)),)
    raise AssertionError(query_request)


@pytest.fixture
async def runtime() -> FakeFleetRuntime:
    runtime = FakeFleetRuntime()
    runtime.answers = answers
    return runtime


async def test_that_somebody_is_there(client: TestClient) -> None:
    for method in ("GET", "HEAD"):
        response = await client.request(method, "/")
        assert response.status == 200
    response = await client.get("/")
    assert await response.text() == "Ollama is running"
    page = await client.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
    assert page.content_type == "text/html"
    assert "inference port" in await page.text()
    response = await client.get("/api/version")
    assert set(await response.json()) == {"version"}


async def test_models(client: TestClient, runtime: FakeFleetRuntime) -> None:
    runtime.model_names, runtime.unloaded = ["demo", "gone"], {"gone"}
    tags = await (await client.get("/api/tags")).json()
    assert [model["name"] for model in tags["models"]] == ["demo", "gone"]
    running = await (await client.get("/api/ps")).json()
    assert [model["name"] for model in running["models"]] == ["demo"]


async def test_one_model(client: TestClient, runtime: FakeFleetRuntime) -> None:
    response = await client.post("/api/show", json={"model": "demo:latest"})
    told = await response.json()
    assert (response.status, told["template"]) == (200, "{{ tools }}")
    assert told["capabilities"] == ["completion", "tools"]
    response = await client.post("/api/show", json={"model": "none"})
    assert (response.status, "none" in (await response.json())["error"]) == (404, True)


async def test_a_model_that_is_not_loaded_is_not_asked(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    runtime.unloaded = {"demo"}
    told = await (await client.post("/api/show", json={"model": "demo"})).json()
    assert (told["template"], runtime.questions) == ("", [])


async def test_vectors(client: TestClient) -> None:
    response = await client.post("/api/embed", json={"model": "demo:latest", "input": "a"})
    told = await response.json()
    assert (told["model"], told["embeddings"]) == ("demo:latest", [[1.0, 0.5]])
    assert told["prompt_eval_count"] == 3
    assert told["total_duration"] > 0
    response = await client.post("/api/embeddings", json={"model": "demo", "prompt": "a"})
    assert await response.json() == {"embedding": [1.0, 0.5]}


async def test_without_an_input_the_model_is_looked_for(client: TestClient) -> None:
    response = await client.post("/api/embed", json={"model": "demo"})
    assert (response.status, (await response.json())["embeddings"]) == (200, [])
    response = await client.post("/api/embeddings", json={"model": "none"})
    assert response.status == 404
