"""The Responses API over a WebSocket, by OpenAI's client and by hand."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.openai.responses.web_socket import MAX_LANES, MAX_WAITING
from arriero.shared.errors import QueueFull
from arriero.shared.inference import Token
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done, echo
from tests.waiting import given_time

PATH = "/v1/responses"


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime()


@pytest.fixture
async def client(runtime: FakeFleetRuntime) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime))) as client:
        yield client


@pytest.fixture
async def socket(client: TestClient) -> AsyncIterator[ClientWebSocketResponse]:
    async with client.ws_connect(PATH) as socket:
        yield socket


def create(**members: Any) -> dict[str, Any]:
    return {"type": "response.create", "input": "Hi"} | members


async def until(socket: ClientWebSocketResponse, *types: str) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = await socket.receive_json()
        if event["type"] in types:
            return event


async def answered(socket: ClientWebSocketResponse, **members: Any) -> dict[str, Any]:
    await socket.send_json(create(**members))
    return await until(socket, "response.completed", "response.failed", "error")


async def test_openais_client(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.script = echo
    url = str(client.make_url("/v1"))
    async with (
        openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as sdk,
        sdk.responses.connect() as connection,
    ):
        await connection.send({"type": "response.create", "input": "Hi", "store": False})
        async for event in connection:
            if event.type == "response.completed":
                break
        assert event.response.output_text == "you said: Hi"


async def test_what_is_not_stored_is_continued_on_its_socket_alone(
    runtime: FakeFleetRuntime, client: TestClient, socket: ClientWebSocketResponse
) -> None:
    runtime.script = echo
    first = (await answered(socket, store=False))["response"]["id"]
    second = await answered(socket, input="More", previous_response_id=first, store=False)
    assert second["type"] == "response.completed"
    roles = [message.role for message in runtime.streams[1].request.messages or ()]
    assert roles == ["user", "assistant", "user"]
    assert (await client.get(f"{PATH}/{first}")).status == 404
    await socket.close()
    async with client.ws_connect(PATH) as other:
        lost = await answered(other, previous_response_id=first)
        assert lost["error"]["code"] == "previous_response_not_found"


async def test_what_is_stored_is_everybodys(
    runtime: FakeFleetRuntime, client: TestClient, socket: ClientWebSocketResponse
) -> None:
    runtime.script = echo
    id = (await answered(socket))["response"]["id"]
    assert (await client.get(f"{PATH}/{id}")).status == 200
    response = await client.post(PATH, json={"input": "More"})
    known = (await response.json())["id"]
    assert (await answered(socket, previous_response_id=known))["type"] == "response.completed"


async def test_responses_come_one_after_the_other_but_lanes_do_not_wait(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    for lane in (None, None, "a"):
        await socket.send_json(create() if lane is None else create(stream_id=lane))
    one, other = await runtime.opened(2)
    other.say(Token("other"), done())
    event = await until(socket, "response.completed")
    assert event["stream_id"] == "a"
    assert len(runtime.streams) == 2
    one.say(done())
    assert "stream_id" not in await until(socket, "response.completed")
    (_, _, last) = await runtime.opened(3)
    last.say(done())
    await until(socket, "response.completed")


async def test_only_the_input_is_computed(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    runtime.script = lambda _: [done()]
    response = (await answered(socket, generate=False))["response"]
    assert runtime.streams[0].request.prefill_only
    assert response["output"] == []
    assert (await answered(socket, previous_response_id=response["id"]))["type"] != "error"


async def test_what_is_refused_leaves_the_socket_open(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    runtime.script, runtime.refusals = echo, [QueueFull("full")]
    assert (await answered(socket))["error"]["code"] == "queue_full"
    assert (await answered(socket, input=7))["error"]["param"] == "input"
    assert (await answered(socket, top_p=7))["error"]["param"] == "top_p"
    await socket.send_str("{oops")
    assert (await until(socket, "error"))["status"] == 400
    await socket.send_json({"type": "response.steer", "input": "x", "previous_response_id": "r"})
    await until(socket, "response.steer.failed")
    assert (await answered(socket))["type"] == "response.completed"


async def test_fields_without_effect_are_told(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    runtime.script = echo
    await socket.send_json(create(max_tool_calls=3))
    assert (await until(socket, "response.created"))["ignored_fields"] == ["max_tool_calls"]


async def test_so_many_wait_and_no_more(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(create())
    await runtime.opened()
    for _ in range(MAX_WAITING + 1):
        await socket.send_json(create())
    assert (await until(socket, "error"))["error"]["code"] == "rate_limit_exceeded"


async def test_so_many_run_at_once_and_no_more(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    for lane in range(MAX_LANES + 1):
        await socket.send_json(create(stream_id=str(lane)))
    assert (await until(socket, "error"))["error"]["code"] == "rate_limit_exceeded"
    assert len(await runtime.opened(MAX_LANES)) == MAX_LANES


async def test_a_client_that_leaves_ends_what_it_asked_for(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    for lane in ("a", "b"):
        await socket.send_json(create(stream_id=lane))
    await runtime.opened(2)
    await socket.close()
    await runtime.until(lambda: runtime.num_open == 0)


async def test_a_plain_get_is_told_to_upgrade(client: TestClient) -> None:
    response = await client.get(PATH)
    assert response.status == 400
    assert "WebSocket" in (await response.json())["error"]["message"]


async def test_shutdown_sends_what_waits_then_closes(
    runtime: FakeFleetRuntime, client: TestClient, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(create())
    (stream,) = await runtime.opened()
    stream.say(Token("x"), done())
    async with given_time():
        await client.server.close()
    messages = [await socket.receive() for _ in range(10)]
    texts = [json.loads(each.data)["type"] for each in messages if each.type == WSMsgType.TEXT]
    assert texts[-1] == "response.completed"
    assert messages[-1].type == WSMsgType.CLOSE
