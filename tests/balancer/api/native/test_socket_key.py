"""A socket's key: in a header, or in the first call; and what happens when it is no more."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.access.access import Access
from arriero.balancer.api.app import inference_app
from arriero.balancer.api.native import web_socket
from arriero.shared.inference import Failed, Token
from tests.balancer.access.builders import record, secret
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.waiting import HANGS

KEY = secret(1)
BEARER = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
def access() -> Access:
    return Access([record("ci", 1), record("eye", 2, "viewer"), record("other", 3)])


@pytest.fixture
async def client(runtime: FakeFleetRuntime, access: Access) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime, access=access))) as client:
        yield client


def call(id: Any, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


async def ask(socket: ClientWebSocketResponse, method: str, **params: Any) -> Any:
    await socket.send_str(call(1, method, **params))
    return await socket.receive_json(timeout=HANGS)


async def is_closed(socket: ClientWebSocketResponse) -> bool:
    message = await socket.receive(timeout=HANGS)
    return (message.type, message.data) == (WSMsgType.CLOSE, 1008)


async def test_the_first_call_may_show_the_key(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    async with client.ws_connect("/api/v1/socket") as socket:
        shown = await ask(socket, "authenticate", key=KEY)
        assert shown["result"] == {"authenticated": True, "name": "ci", "role": "inference"}
        await socket.send_str(call("r", "generate", prompt="x"))
        await runtime.opened()
        assert [(each.name, each.owner) for each in runtime.callers] == [("ci", "ci@1.000000")]


async def test_with_a_header_nothing_has_to_be_shown(client: TestClient) -> None:
    async with client.ws_connect("/api/v1/socket", headers=BEARER) as socket:
        assert (await ask(socket, "ping"))["result"] == {"pong": True}
        assert (await ask(socket, "authenticate", key=KEY))["result"]["name"] == "ci"
        other = await ask(socket, "authenticate", key=secret(3))
        assert "another access key" in other["error"]["message"]
        assert (await ask(socket, "ping"))["result"] == {"pong": True}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("ping", {}, "unauthorized"),
        ("generate", {"prompt": "x"}, "unauthorized"),
        ("authenticate", {"key": secret(9)}, "unauthorized"),
    ],
)
async def test_who_shows_none_or_a_wrong_one_is_sent_away(
    client: TestClient, runtime: FakeFleetRuntime, method: str, params: dict[str, Any], code: str
) -> None:
    async with client.ws_connect("/api/v1/socket") as socket:
        answer = await ask(socket, method, **params)
        assert answer["error"]["data"]["code"] == code
        assert secret(9) not in str(answer)
        assert await is_closed(socket)
    assert runtime.num_open == 0


async def test_a_key_of_another_role_does_not_do(client: TestClient) -> None:
    async with client.ws_connect("/api/v1/socket") as socket:
        answer = await ask(socket, "authenticate", key=secret(2))
        assert answer["error"]["data"]["code"] == "forbidden"
        assert KEY not in str(await ask(socket, "authenticate", secret=KEY))
        assert (await ask(socket, "authenticate", key=KEY))["result"]["authenticated"]


async def test_a_large_frame_before_the_key_is_not_read(client: TestClient) -> None:
    async with client.ws_connect("/api/v1/socket") as socket:
        answer = await ask(socket, "authenticate", key="x" * 5000)
        assert answer["error"]["data"]["code"] == "unauthorized"
        assert await is_closed(socket)


async def test_who_says_nothing_is_sent_away(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_socket, "AUTHENTICATE_TIMEOUT", 0.01)
    async with client.ws_connect("/api/v1/socket") as socket:
        assert await is_closed(socket)


@pytest.mark.parametrize("is_shown_later", [False, True])
async def test_a_revoked_key_ends_the_socket_and_its_requests_in_order(
    client: TestClient, runtime: FakeFleetRuntime, access: Access, is_shown_later: bool
) -> None:
    access.listen(lambda _holder, error: runtime.streams[0].say(Failed(error)))
    headers = {} if is_shown_later else BEARER
    async with client.ws_connect("/api/v1/socket", headers=headers) as socket:
        if is_shown_later:
            await ask(socket, "authenticate", key=KEY)
        await socket.send_str(call("r", "generate", prompt="x"))
        (stream,) = await runtime.opened()
        stream.say(Token("a"))
        assert (await socket.receive_json())["params"]["text"] == "a"
        access.put(record("ci", 1, revoked_at=2.0))
        answer = await socket.receive_json(timeout=HANGS)
        assert answer["error"]["data"]["code"] == "unauthorized"
        assert await is_closed(socket)
    await asyncio.wait_for(runtime.until(lambda: access.num_leases == 0), HANGS)


async def test_without_keys_it_may_be_shown_for_nothing(runtime: FakeFleetRuntime) -> None:
    async with (
        TestClient(TestServer(inference_app(runtime))) as client,
        client.ws_connect("/api/v1/socket") as socket,
    ):
        shown = await ask(socket, "authenticate", key="anything")
        assert shown["result"] == {"authenticated": True, "name": None, "role": None}
        assert (await ask(socket, "ping"))["result"] == {"pong": True}
