"""The caller of each route's requests reaches the fleet."""

import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.api.transport.callers import LONGEST_USER_AGENT
from arriero.balancer.fleet.caller import Caller
from arriero.shared.errors import ModelNotFound
from arriero.shared.tracing.trace_context import TraceContext
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo

CALLER = Caller(address="127.0.0.1", user_agent="curl/8.0")
HEADERS = {"User-Agent": "curl/8.0"}

PROMPT: dict[str, Any] = {"prompt": "x"}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
BATCH: dict[str, Any] = {"requests": [PROMPT | {"id": "a"}, PROMPT | {"id": "b"}]}

BODIES: dict[str, dict[str, Any]] = {
    "/api/v1/generate": PROMPT,
    "/api/v1/generate_batch": BATCH,
    "/api/v1/embed": {"input": "x"},
    "/api/v1/tokenize": {"text": "x"},
    "/api/v1/detokenize": {"tokens": [1]},
    "/api/v1/count_tokens": CHAT,
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [1]},
    "/completion": PROMPT,
    "/infill": {"input_prefix": "x", "input_suffix": "y"},
    "/completions": PROMPT,
    "/chat/completions": CHAT,
    "/embeddings": {"input": "x"},
    "/rerank": {"query": "x", "documents": ["y"]},
    "/v2/rerank": {"query": "x", "documents": ["y"]},
    "/v1/completions": PROMPT,
    "/v1/chat/completions": CHAT,
    "/v1/embeddings": {"input": "x"},
    "/v1/rerank": {"query": "x", "documents": ["y"]},
    "/v1/responses": {"input": "x"},
    "/v1/responses/input_tokens": {"input": "x"},
    "/v1/messages": CHAT | {"model": "demo", "max_tokens": 5},
    "/v1/messages/count_tokens": CHAT | {"model": "demo"},
    "/api/chat": CHAT | {"model": "demo"},
    "/api/generate": PROMPT | {"model": "demo"},
    "/api/embed": {"model": "demo", "input": "x"},
    "/api/embeddings": {"model": "demo", "prompt": "x"},
    "/api/show": {"model": "demo"},
}
METHODS = [path.removeprefix("/api/v1/") for path in BODIES if path.startswith("/api/v1/")]


@pytest.fixture
def answering(runtime: FakeFleetRuntime) -> FakeFleetRuntime:
    """Answers every request, and refuses every query."""
    runtime.script = echo
    runtime.answers = lambda _query_request: ModelNotFound("no such model here")
    return runtime


def told(runtime: FakeFleetRuntime) -> set[Caller]:
    """The callers of all requests, which came over connections that have numbers."""
    assert all(caller.connection is not None for caller in runtime.callers)
    return {replace(caller, connection=None) for caller in runtime.callers}


@pytest.mark.parametrize("path", BODIES)
async def test_over_http(answering: FakeFleetRuntime, client: TestClient, path: str) -> None:
    response = await client.post(path, json=BODIES[path], headers=HEADERS)
    await response.read()
    assert told(answering) == {CALLER}, response.status


@pytest.mark.parametrize("method", METHODS)
async def test_over_the_socket(
    answering: FakeFleetRuntime, client: TestClient, method: str
) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": BODIES[f"/api/v1/{method}"]}
    async with client.ws_connect("/api/v1/socket", headers=HEADERS) as socket:
        await socket.send_str(json.dumps(call))
        while (await socket.receive_json()).get("id") != 1:
            pass
    assert told(answering) == {CALLER}


async def test_every_door_that_takes_a_request_is_tried(client: TestClient) -> None:
    app = client.server.app  # type: ignore[attr-defined]
    posts = {
        str(route.resource.canonical) for route in app.router.routes() if route.method == "POST"
    }
    assert posts - set(BODIES) == {
        "/ping",
        "/v1/responses/compact",
        "/v1/responses/{id}/cancel",
        "/v1/conversations",
        "/v1/conversations/{id}",
        "/v1/conversations/{id}/items",
        "/v1/files",
        "/v1/batches",
        "/v1/batches/{id}/cancel",
    }


async def test_a_long_user_agent_is_cut(answering: FakeFleetRuntime, client: TestClient) -> None:
    headers = {"User-Agent": "x" * 4000}
    await client.post("/api/v1/generate", json=PROMPT, headers=headers)
    (caller,) = answering.callers
    assert caller.user_agent == "x" * LONGEST_USER_AGENT


async def test_the_client_s_span_is_known(answering: FakeFleetRuntime, client: TestClient) -> None:
    context = TraceContext(7, 8, is_sampled=True)
    for headers in (
        [("traceparent", context.traceparent)],
        [("traceparent", "junk")],
        [("traceparent", context.traceparent), ("traceparent", context.traceparent)],
    ):
        await client.post("/api/v1/generate", json=PROMPT, headers=headers)
    assert [caller.trace_parent for caller in answering.callers] == [context, None, None]
