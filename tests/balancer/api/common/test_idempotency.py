"""A request that is sent again with its idempotency key is answered once, at every path."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.retained_record import AskedRequest, RetainedKey, RetainedRecord
from arriero.balancer.fleet.runtime.retained_requests import RetainedRequests
from arriero.shared.errors import AgentLost
from arriero.shared.inference import Failed, GenerateRequest, RequestId, Token
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done
from tests.waiting import HANGS

KEY = {"Idempotency-Key": "k-1"}
MESSAGES = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/api/v1/generate": {"prompt": "hi"},
    "/v1/completions": {"prompt": "hi", "stream": True},
    "/v1/chat/completions": {"messages": MESSAGES, "stream": True},
    "/v1/responses": {"input": "hi", "stream": True},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9, "model": "demo", "stream": True},
}


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime()


@pytest.fixture
async def client(runtime: FakeFleetRuntime) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime))) as client:
        yield client


def words(text: str) -> list[int]:
    return [text.count(word) for word in ("alpha", "beta", "gamma")]


@asynccontextmanager
async def begun(
    client: TestClient, runtime: FakeFleetRuntime, path: str, headers: dict[str, str]
) -> AsyncIterator[ClientResponse]:
    """A response that has begun with the text `alpha`."""
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(client.post(path, json=BODIES[path], headers=headers))
        [stream] = await runtime.opened()
        stream.say(Token("alpha"))
        async with asyncio.timeout(HANGS), await asking as response:
            yield response


@pytest.mark.parametrize("path", BODIES)
async def test_a_lost_connection_is_picked_up(
    client: TestClient, runtime: FakeFleetRuntime, path: str
) -> None:
    async with begun(client, runtime, path, KEY) as response:
        ids = response.headers.getall("X-Request-Id", [])
    # The client is gone; the request is not.
    [stream] = runtime.streams
    stream.say(Token("beta"))
    assert not stream.is_closed_early
    async with client.post(path, json=BODIES[path], headers=KEY) as response:
        assert ids == response.headers.getall("X-Request-Id", [])
        stream.say(Token("gamma"), done())
        told = await response.text()
    first, second, third = words(told)
    assert first == second == third > 0
    assert len(runtime.streams) == 1


@pytest.mark.parametrize("path", BODIES)
async def test_without_a_key_a_lost_connection_cancels(
    client: TestClient, runtime: FakeFleetRuntime, path: str
) -> None:
    async with begun(client, runtime, path, {}):
        [stream] = runtime.streams
    async with asyncio.timeout(HANGS):
        await runtime.until(lambda: stream.is_closed_early)


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/api/v1/generate"])
async def test_an_answer_says_again_whose_it_is_when_no_agent_is_there(
    client: TestClient, runtime: FakeFleetRuntime, path: str
) -> None:
    runtime.script = lambda _: [Token("alpha"), done()]
    body = {name: value for name, value in BODIES[path].items() if name != "model"}
    told = []
    for names in (["demo"], [], ["another"]):
        runtime.model_names = names
        async with client.post(path, json=body, headers=KEY) as response:
            told.append(await response.text())
    assert '"model":"demo"' in told[0]
    assert told[0] == told[1] == told[2]


async def test_choices_are_kept_each(client: TestClient, runtime: FakeFleetRuntime) -> None:
    body = {"prompt": "hi", "n": 2, "temperature": 1}
    runtime.script = lambda request: [Token(f"seed {request.seed}"), done()]
    answers = []
    for _ in range(2):
        async with client.post("/v1/completions", json=body, headers=KEY) as response:
            answers.append((await response.json())["choices"])
    assert answers[0] == answers[1]
    assert len(runtime.streams) == 2


async def test_another_body_is_a_conflict(client: TestClient, runtime: FakeFleetRuntime) -> None:
    runtime.script = lambda _: [Token("alpha"), done()]
    for prompt, status in (("a", 200), ("b", 409), ("a", 200)):
        async with client.post("/api/v1/generate", json={"prompt": prompt}, headers=KEY) as answer:
            assert answer.status == status
    assert len(runtime.streams) == 1


async def test_an_error_is_not_repeated(client: TestClient, runtime: FakeFleetRuntime) -> None:
    runtime.script = lambda _: [Failed(AgentLost("gone"))]
    async with client.post("/api/v1/generate", json={"prompt": "a"}, headers=KEY) as answer:
        assert answer.status == 502
    runtime.script = lambda _: [Token("alpha"), done()]
    async with client.post("/api/v1/generate", json={"prompt": "a"}, headers=KEY) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_bad_key_is_named(client: TestClient, key: str) -> None:
    headers = {"Idempotency-Key": key}
    async with client.post("/api/v1/generate", json={"prompt": "a"}, headers=headers) as answer:
        assert answer.status == 400
        assert "Idempotency-Key" in (await answer.json())["error"]["message"]


async def test_what_is_not_known_here_is_asked_for_in_the_store(runtime: FakeFleetRuntime) -> None:
    """It adopts what another run of the balancer answered; asked once, and by key only."""
    retained = RetainedRequests(runtime)
    asked: list[tuple[str, str]] = []

    async def restore_retained(_caller: Caller, *, id: str = "", prefix: str = "") -> None:
        asked.append((id, prefix))
        key = RetainedKey(None, f"{prefix}0")
        digest = sha256(b'{"messages": [{"role": "user", "content": "hi"}]}').digest()
        record = RetainedRecord(key, RequestId("r-1"), digest, created_at=12.5)
        asked_before = AskedRequest(GenerateRequest(prompt="x"), ANONYMOUS)
        retained.restore(record, asked_before, [Token("alpha"), done()])

    async with TestClient(
        TestServer(inference_app(runtime, retained=retained, restore_retained=restore_retained))
    ) as client:
        for _ in range(2):
            body = {"messages": MESSAGES}
            async with client.post("/v1/chat/completions", json=body, headers=KEY) as response:
                answer = await response.json()
                assert (answer["id"], answer["created"]) == ("chatcmpl-r-1", 12)
                assert answer["choices"][0]["message"]["content"] == "alpha"
    assert asked == [("", "/v1/chat/completions#k-1#")]
    assert runtime.streams == []
