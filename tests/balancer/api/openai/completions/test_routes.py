import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.transport.defaults import EARLY_HEADERS
from arriero.shared.errors import AgentLost, NotSupported, PromptTooLong, QueueFull, QueueTimeout
from arriero.shared.inference import Failed, Token, ToolCall, ToolCallStarted, Waiting
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done, echo

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
BOTH = [("chat/completions", CHAT), ("completions", {"prompt": "Hi"})]


@pytest.fixture
async def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime()


@pytest.fixture
async def client(runtime: FakeFleetRuntime) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime))) as client:
        yield client


async def post(client: TestClient, path: str, body: Any) -> tuple[Any, Any]:
    response = await client.post(f"/v1/{path}", json=body)
    return response, await response.json()


@pytest.mark.parametrize(("path", "body"), BOTH)
async def test_in_one_piece(
    runtime: FakeFleetRuntime, client: TestClient, path: str, body: Any
) -> None:
    runtime.script = echo
    response, answer = await post(client, path, body)
    assert response.status == 200
    assert response.headers["X-Request-Id"] == "req-0"
    assert answer["id"].endswith("-req-0")
    assert answer["model"] == "demo"
    (choice,) = answer["choices"]
    assert choice.get("text", choice.get("message", {}).get("content")) == "you said: Hi"


@pytest.mark.parametrize(("path", "body"), BOTH)
async def test_streamed(
    runtime: FakeFleetRuntime, client: TestClient, path: str, body: Any
) -> None:
    asked = asyncio.create_task(
        client.post(f"/v1/{path}", json=body | {"stream": True, "model": "demo"})
    )
    (stream,) = await runtime.opened()
    stream.say(Token("one"))
    response = await asked
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["X-Accel-Buffering"] == "no"
    while b"one" not in await response.content.readline():
        pass
    stream.say(done())
    rest = await response.read()
    assert rest.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "body"), BOTH)
async def test_errors_before_the_first_event_are_statuses(
    runtime: FakeFleetRuntime, client: TestClient, path: str, body: Any, stream: bool
) -> None:
    runtime.script = lambda _: [Failed(PromptTooLong("too long", field="prompt"))]
    response, answer = await post(client, path, body | {"stream": stream, "n": 2})
    assert (response.status, response.headers["X-Request-Id"]) == (400, "req-0")
    assert response.headers["X-Should-Retry"] == "false"
    assert answer == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "prompt",
            "code": "context_length_exceeded",
        }
    }


@pytest.mark.parametrize("n", [1, 2])
async def test_choices_that_wait_are_told_in_comments(
    runtime: FakeFleetRuntime, client: TestClient, n: int
) -> None:
    asked = asyncio.create_task(
        client.post("/v1/chat/completions", json=CHAT | {"stream": True, "n": n})
    )
    for number, stream in enumerate(await runtime.opened(n)):
        stream.say(Waiting(1 + number, "slot", 4.0))
    response = await asked
    assert response.status == 200
    assert runtime.tell_waiting == [EARLY_HEADERS] * n
    comment = b": waiting position=1 for=slot seconds_left=4\n"
    assert await response.content.readline() == comment
    for stream in runtime.streams:
        stream.say(Failed(QueueTimeout("waited too long")))
    rest = await response.read()
    assert b"waiting" not in rest
    last = rest.strip().splitlines()[-1]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "queue_timeout"


async def test_in_one_piece_nobody_asks_to_be_told(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = echo
    await post(client, "chat/completions", CHAT)
    assert runtime.tell_waiting == [None]


async def test_an_error_in_a_stream_is_its_last_line(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    asked = asyncio.create_task(
        client.post("/v1/chat/completions", json=CHAT | {"stream": True, "n": 2})
    )
    fails, goes_on = await runtime.opened(2)
    goes_on.say(Token("a"))
    response = await asked
    await response.content.readline()
    fails.say(Failed(AgentLost("gone")))
    *_, last = (await response.read())[:-2].split(b"\n\n")
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "agent_lost"
    await runtime.until(lambda: runtime.num_open == 0)


async def test_a_choice_that_fails_fails_the_answer(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    asked = asyncio.create_task(post(client, "chat/completions", CHAT | {"n": 2}))
    fails, goes_on = await runtime.opened(2)
    goes_on.say(Token("a"))
    fails.say(Failed(AgentLost("gone")))
    response, _ = await asked
    assert response.status == 502
    await runtime.until(lambda: runtime.num_open == 0)


async def test_a_choice_that_is_refused_refuses_all(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.refusals = [None, QueueFull("full")]
    response, answer = await post(client, "chat/completions", CHAT | {"n": 3})
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert answer["error"]["type"] == "server_error"
    assert runtime.num_open == 0


async def test_without_a_model_anywhere_the_answer_has_no_name(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.model_names = []
    runtime.script = echo
    _, answer = await post(client, "chat/completions", CHAT)
    assert answer["model"] == ""


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1", None, 404),
        ("GET", "/v1/nowhere", None, 404),
        ("GET", "/v1/completions", None, 405),
        ("POST", "/v1/completions", b"{", 400),
        ("POST", "/v1/completions", b'"' + b"x" * 17_000_000 + b'"', 413),
    ],
)
async def test_errors_around_it_are_openais_too(
    client: TestClient, method: str, path: str, body: bytes | None, status: int
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body or b""), 1_000_000):
            yield (body or b"")[start : start + 1_000_000]

    headers = {"Content-Type": "application/json"}
    response = await client.request(method, path, data=chunks() if body else None, headers=headers)
    assert response.status == status
    error = (await response.json())["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]


# ---- the official client


@pytest.fixture
async def official(client: TestClient) -> AsyncIterator[openai.AsyncOpenAI]:
    url = str(client.make_url("/v1"))
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as official:
        yield official


async def test_the_official_client(runtime: FakeFleetRuntime, official: openai.AsyncOpenAI) -> None:
    runtime.script = echo
    assert [model.id async for model in official.models.list()] == ["demo"]
    answer = await official.chat.completions.create(model="demo", n=2, **CHAT)
    assert [choice.message.content for choice in answer.choices] == ["you said: Hi"] * 2
    assert answer.usage is not None
    assert answer.usage.total_tokens == 11
    text = await official.completions.create(model="demo", prompt=["a", "b"])
    assert [choice.text for choice in text.choices] == ["you said: a", "you said: b"]


async def test_the_official_client_streaming(
    runtime: FakeFleetRuntime, official: openai.AsyncOpenAI
) -> None:
    runtime.script = echo
    stream = await official.chat.completions.create(
        model="demo", stream=True, stream_options={"include_usage": True}, **CHAT
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "you said: Hi"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2


async def test_the_official_client_passes_over_comments(
    runtime: FakeFleetRuntime, official: openai.AsyncOpenAI
) -> None:
    runtime.script = lambda asked: [Waiting(2, "slot"), Waiting(1, "slot"), *echo(asked)]
    chat = await official.chat.completions.create(model="demo", stream=True, **CHAT)
    said = [chunk.choices[0].delta.content or "" async for chunk in chat]
    assert "".join(said) == "you said: Hi"
    runtime.script = lambda _: [Waiting(1, "model"), Failed(QueueTimeout("waited too long"))]
    chat = await official.chat.completions.create(model="demo", stream=True, **CHAT)
    with pytest.raises(openai.APIError, match="waited too long"):
        [chunk async for chunk in chat]


async def test_the_official_client_sees_errors(
    runtime: FakeFleetRuntime, official: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        await official.chat.completions.create(model="demo", temperature=-1, **CHAT)
    assert bad.value.param == "temperature"
    runtime.script = lambda _: [Token("a"), Failed(AgentLost("gone"))]
    stream = await official.chat.completions.create(model="demo", stream=True, **CHAT)
    with pytest.raises(openai.APIError, match="gone"):
        [chunk async for chunk in stream]


async def test_the_official_client_does_not_repeat_what_cannot_work(
    runtime: FakeFleetRuntime, official: openai.AsyncOpenAI
) -> None:
    runtime.script = lambda _: [Failed(NotSupported("the model has no chat template"))]
    with pytest.raises(openai.InternalServerError):
        await official.with_options(max_retries=2).chat.completions.create(model="demo", **CHAT)
    assert len(runtime.streams) == 1


async def test_the_official_client_closing_a_stream(
    runtime: FakeFleetRuntime, official: openai.AsyncOpenAI
) -> None:
    asked = asyncio.create_task(
        official.chat.completions.create(model="demo", stream=True, n=2, **CHAT)
    )
    first, _ = await runtime.opened(2)
    first.say(Token("a"))
    stream = await asked
    await anext(aiter(stream))
    await stream.close()
    await runtime.until(lambda: runtime.num_open == 0)


@pytest.mark.parametrize(("path", "body"), BOTH)
async def test_the_tier_that_was_used_is_told(
    runtime: FakeFleetRuntime, client: TestClient, path: str, body: Any
) -> None:
    runtime.script = echo
    for asked, used in (
        (None, "default"),
        ("auto", "default"),
        ("flex", "flex"),
        ("fast", "priority"),
    ):
        _, answer = await post(client, path, body | {"service_tier": asked})
        assert answer["service_tier"] == used
    streamed = await client.post(
        f"/v1/{path}", json=body | {"stream": True, "service_tier": "priority"}
    )
    frames = (await streamed.text()).removesuffix("data: [DONE]\n\n").split("\n\n")
    told = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame]
    assert {chunk["service_tier"] for chunk in told} == {"priority"}


@pytest.mark.parametrize(("path", "body"), BOTH)
async def test_both_are_also_without_the_version(
    runtime: FakeFleetRuntime, client: TestClient, path: str, body: Any
) -> None:
    runtime.script = echo
    response = await client.post(f"/{path}", json=body)
    assert (response.status, (await response.json())["model"]) == (200, "demo")
    refused = await client.post(f"/{path}", json=body | {"n": 0})
    assert (await refused.json())["error"]["param"] == "n"


FUNCTIONS = [{"name": "look", "parameters": {"type": "object"}}]


def calling(_request: object) -> list[Any]:
    return [
        ToolCallStarted("call00001", "look"),
        Token('{"a":1}', "tool_call"),
        ToolCall("call00001", "look", '{"a":1}'),
        done("tool_calls"),
    ]


async def test_older_clients_get_calls_of_functions(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = calling
    _, answer = await post(client, "chat/completions", CHAT | {"functions": FUNCTIONS})
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "look", "arguments": '{"a":1}'}
    assert "tool_calls" not in choice["message"]
    asked = CHAT | {"functions": FUNCTIONS, "stream": True}
    response = await client.post("/v1/chat/completions", json=asked)
    lines = (await response.text()).split("\n\n")
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines if '"choices"' in line]
    called = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert called == [{"name": "look", "arguments": ""}, {"arguments": '{"a":1}'}]
