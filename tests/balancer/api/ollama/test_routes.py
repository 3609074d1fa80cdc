"""`/api/chat` and `/api/generate` over a fake fleet runtime."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.shared.errors import EngineFailed, InvalidRequest, QueueFull
from arriero.shared.inference import Failed, Token
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo

BODIES: dict[str, dict[str, Any]] = {
    "/api/chat": {"model": "demo", "messages": [{"role": "user", "content": "hi"}]},
    "/api/generate": {"model": "demo", "prompt": "hi"},
}


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime(echo)


@pytest.fixture
async def client(runtime: FakeFleetRuntime) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime))) as client:
        yield client


async def ask(client: TestClient, path: str, **body: Any) -> tuple[int, Any, list[Any]]:
    async with client.post(path, json=BODIES[path] | body) as response:
        lines = (await response.text()).splitlines()
        return response.status, response.headers, [json.loads(line) for line in lines]


def text_of(line: dict[str, Any]) -> str:
    text: str = line["message"]["content"] if "message" in line else line["response"]
    return text


@pytest.mark.parametrize("path", BODIES)
async def test_an_answer_is_streamed_unless_told_otherwise(client: TestClient, path: str) -> None:
    status, headers, lines = await ask(client, path)
    assert (status, headers["Content-Type"]) == (200, "application/x-ndjson")
    assert [text_of(line) for line in lines] == ["you said: ", "hi", ""]
    assert [line["done"] for line in lines] == [False, False, True]
    assert {line["model"] for line in lines} == {"demo"}
    status, headers, [whole] = await ask(client, path, stream=False)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert (text_of(whole), whole["done"]) == ("you said: hi", True)
    assert headers["X-Request-Id"] == "req-1"


async def test_latest_is_taken_off(client: TestClient, runtime: FakeFleetRuntime) -> None:
    _, _, lines = await ask(client, "/api/chat", model="demo:latest")
    assert lines[-1]["model"] == "demo:latest"
    assert runtime.streams[0].request.model == "demo"


@pytest.mark.parametrize("path", BODIES)
async def test_with_nothing_to_answer_the_model_is_looked_for(
    client: TestClient, runtime: FakeFleetRuntime, path: str
) -> None:
    nothing = {"messages": []} if path == "/api/chat" else {"prompt": ""}
    status, _, [line] = await ask(client, path, **nothing)
    assert (status, line["done_reason"], line["done"]) == (200, "load", True)
    status, _, [line] = await ask(client, path, **nothing, model="none")
    assert (status, "not found" in line["error"]) == (404, True)
    assert runtime.streams == []


async def test_errors_before_the_first_line_are_statuses(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    runtime.refusals = [QueueFull("later")]
    status, headers, [line] = await ask(client, "/api/chat")
    assert (status, line, headers["Retry-After"]) == (503, {"error": "later"}, "1")
    wrong = InvalidRequest("`top_k` is odd", field="top_k")
    runtime.script = lambda _request: [Failed(wrong)]
    for stream in (True, False):
        status, headers, [line] = await ask(client, "/api/chat", stream=stream)
        assert (status, line) == (400, {"error": "`options.top_k` is odd"})
        assert "X-Request-Id" in headers


async def test_errors_after_it_are_lines(client: TestClient, runtime: FakeFleetRuntime) -> None:
    runtime.script = lambda _request: [Token("a"), Failed(EngineFailed("it broke"))]
    status, _, lines = await ask(client, "/api/generate")
    assert (status, lines[-1]) == (200, {"error": "it broke"})


async def test_wrong_bodies_and_paths_have_ollamas_shape(client: TestClient) -> None:
    status, _, [line] = await ask(client, "/api/chat", options={"top_p": 2})
    assert (status, line) == (400, {"error": "`options.top_p` must be at most 1, not 2"})
    async with client.post("/") as response:
        assert (response.status, set(await response.json())) == (405, {"error"})
        assert isinstance((await response.json())["error"], str)
    async with client.get("/api/nothing") as response:
        assert (response.status, "error" in await response.json()) == (404, True)
    async with client.get("/api/chat") as response:
        assert response.status == 405
        assert isinstance((await response.json())["error"], str)
    async with client.get("/api/v1/nothing") as response:
        assert (await response.json())["error"]["code"] == "not_found"


async def test_what_is_ignored_is_told(client: TestClient) -> None:
    _, headers, _ = await ask(client, "/api/chat", keep_alive="5m", options={"num_ctx": 4096})
    assert headers["X-Arriero-Ignored"] == "keep_alive, options.num_ctx"


async def test_who_waits_hears_nothing(client: TestClient, runtime: FakeFleetRuntime) -> None:
    await ask(client, "/api/chat")
    assert runtime.tell_waiting == [None]
