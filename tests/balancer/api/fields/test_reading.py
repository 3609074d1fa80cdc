"""Through the app: what was ignored is told in a header, whatever the answer is."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.fields.reading import IGNORED_HEADER
from arriero.balancer.api.transport.fault_reports import FaultReports
from arriero.shared.errors import QueueFull
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done
from tests.waiting import HANGS

MESSAGES = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
CODEX = {
    "model": "demo",
    "input": "hi",
    "client_metadata": {"a": "b"},
    "text": {"colour": "low"},
}
CLAUDE = {
    "model": "demo",
    "max_tokens": 5,
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
        }
    ],
    "speed": "fast",
}


class Counts:
    def __init__(self) -> None:
        self.ignored: list[tuple[str, str]] = []

    def field_ignored(self, route: str, field: str) -> None:
        self.ignored.append((route, field))

    def refused(self, route: str, code: str) -> None: ...


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
async def client(counts: Counts) -> AsyncIterator[TestClient]:
    runtime = FakeFleetRuntime(script=lambda _request: [done()])
    app = inference_app(runtime, reports=FaultReports(counts))
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        (CHAT, {"messages": MESSAGES, "safety_identifier": "low", "x": 1}, "safety_identifier, x"),
        ("/v1/completions", {"prompt": "a", "user": "me"}, "user"),
        ("/v1/responses", CODEX, "client_metadata, text.colour"),
        (
            "/v1/messages",
            CLAUDE,
            "messages[].content[].cache_control, speed",
        ),
    ],
)
async def test_ignored_fields_are_told(
    client: TestClient, path: str, body: dict[str, Any], ignored: str, stream: bool
) -> None:
    answer = await client.post(path, json={**body, "stream": stream})
    assert (answer.status, answer.headers.get(IGNORED_HEADER)) == (200, ignored)
    await asyncio.wait_for(answer.read(), HANGS)


async def test_nothing_is_told_where_nothing_was_ignored(client: TestClient) -> None:
    answer = await client.post(CHAT, json={"messages": MESSAGES, "store": False})
    assert (answer.status, IGNORED_HEADER in answer.headers) == (200, False)


async def test_errors_tell_it_too(client: TestClient, counts: Counts) -> None:
    answer = await client.post(CHAT, json={"messages": MESSAGES, "user": "a", "y": 1, "n": 0})
    assert (answer.status, answer.headers[IGNORED_HEADER]) == (400, "user, y")
    assert counts.ignored == [(CHAT, "user"), (CHAT, "other")]


async def test_a_refusal_of_the_fleet_tells_it_too() -> None:
    runtime = FakeFleetRuntime()
    runtime.refusals = [QueueFull("full")]
    async with TestClient(TestServer(inference_app(runtime))) as client:
        answer = await client.post("/v1/messages", json=CLAUDE)
    assert (answer.status, "speed" in answer.headers[IGNORED_HEADER]) == (529, True)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, {"messages": MESSAGES, "user": "low"}, "user"),
        ("/v1/messages", CLAUDE, "messages[0].content[0].cache_control"),
        ("/v1/embeddings", {"input": "a", "colour": "red"}, "colour"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "colour": "red"}, "colour"),
        ("/v1/responses", CODEX, "client_metadata"),
    ],
)
async def test_a_strict_balancer_refuses(path: str, body: dict[str, Any], field: str) -> None:
    runtime = FakeFleetRuntime(script=lambda _request: [done()])
    app = inference_app(runtime, reports=FaultReports(is_strict=True))
    async with TestClient(TestServer(app)) as client:
        answer = await client.post(path, json=body)
        error = (await answer.json())["error"]
    assert (answer.status, f"`{field}`" in error["message"]) == (400, True)


async def test_the_native_api_refuses_what_it_does_not_know(client: TestClient) -> None:
    answer = await client.post("/api/v1/generate", json={"prompt": "a", "colour": "red"})
    assert (answer.status, (await answer.json())["error"]["field"]) == (400, "colour")
