"""The endpoint: upgrades, shutdown, and the bytes that messages may hold."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.native import web_socket
from arriero.balancer.api.transport.bodies import Bodies
from arriero.balancer.api.transport.connections import Connections, ConnectionsRunner
from arriero.shared.inference import Token
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done, echo
from tests.balancer.api.native.socket_calls import answers_ping, call, until_answer
from tests.waiting import HANGS, given_time, until


async def test_a_huge_frame_closes_the_socket(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(call("r", "generate", prompt="x"))
    with suppress(ConnectionError):
        await socket.send_bytes(b"x" * (web_socket.MAX_FRAME_BYTES + 1))
    await runtime.until(lambda: runtime.num_open == 0)


async def test_a_plain_get_is_told_to_upgrade(client: TestClient) -> None:
    response = await client.get("/api/v1/socket")
    assert response.status == 400
    assert "WebSocket" in (await response.json())["error"]["message"]


async def test_pages_of_other_origins_are_refused(client: TestClient) -> None:
    headers = {"Origin": "http://elsewhere.example"}
    response = await client.get("/api/v1/socket", headers=headers)
    assert response.status == 403


async def test_shutdown_sends_what_waits_then_closes(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    socket = await client.ws_connect("/api/v1/socket")
    idle = await client.ws_connect("/api/v1/socket")
    await socket.send_json(call("r", "generate", prompt="x"))
    (stream,) = await runtime.opened()
    stream.say(*[Token("x")] * 500, done())
    async with given_time():
        closing = asyncio.create_task(client.server.close())
        assert "result" in await until_answer(socket, "r")
    for one in (socket, idle):
        message = await one.receive()
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
    await closing


async def test_shutdown_waits_for_a_reader_that_is_behind(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    socket = await client.ws_connect("/api/v1/socket")
    await socket.send_json(call("r", "generate", prompt="x"))
    (stream,) = await runtime.opened()
    stream.say(*[Token("x" * 1_000_000)] * 30, done())
    await runtime.until(lambda: stream.num_delivered >= 1)
    async with given_time():
        closing = asyncio.create_task(client.server.close())
        assert "result" in await until_answer(socket, "r")
    await socket.close()
    await closing


LAST_PART = b"\x80\x80\0\0\0\0"
"""The empty end of a message."""


def part(num_bytes: int) -> bytes:
    """The first part of a message, masked with zeros, which leave it as it is."""
    return b"\x01\xfe" + num_bytes.to_bytes(2, "big") + bytes(4) + b" " * num_bytes


def raw(socket: ClientWebSocketResponse) -> asyncio.Transport:
    """What lies below it, to send frames that no good client sends."""
    transport = socket._writer.transport
    assert isinstance(transport, asyncio.Transport)
    return transport


@asynccontextmanager
async def served(bodies: Bodies) -> AsyncIterator[str]:
    """The address of the app on connections as the balancer has them."""
    app = inference_app(FakeFleetRuntime(echo), bodies=bodies)
    runner = ConnectionsRunner(app, Connections(), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with asyncio.timeout(HANGS):
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1/socket"
    finally:
        await runner.cleanup()


class TestBytes:
    async def test_of_parts_count_until_their_message_is_through(self) -> None:
        bodies = Bodies()
        async with served(bodies) as url, ClientSession() as http, http.ws_connect(url) as socket:
            frame = json.dumps(call("r1", "ping")).encode()
            raw(socket).write(part(len(frame))[: -len(frame)] + frame)
            await until(lambda: bodies.num_bytes == len(frame))
            raw(socket).write(LAST_PART)
            assert (await until_answer(socket, "r1"))["result"] == {"pong": True}
            await until(lambda: bodies.num_bytes == 0)

    async def test_that_are_too_many_close_their_socket_and_no_other(self) -> None:
        bodies = Bodies(max_held_bytes=2000)
        async with served(bodies) as url, ClientSession() as http:
            async with http.ws_connect(url) as first, http.ws_connect(url) as second:
                raw(first).write(part(900))
                await until(lambda: bodies.num_bytes == 900)
                assert await answers_ping(second)
                raw(second).write(part(200))
                closed = await second.receive(timeout=HANGS)
                assert (closed.type, closed.data) == (WSMsgType.CLOSE, 1013)
                assert bodies.num_bytes == 900
                assert not first.closed
            await until(lambda: bodies.num_bytes == 0)

    async def test_of_whole_messages_count_on_any_connection(self) -> None:
        app = inference_app(FakeFleetRuntime(echo), bodies=Bodies(max_held_bytes=300))
        async with (
            TestClient(TestServer(app)) as client,
            client.ws_connect("/api/v1/socket") as socket,
        ):
            assert await answers_ping(socket)
            await socket.send_str("x" * 301)
            closed = await socket.receive(timeout=HANGS)
            assert (closed.type, closed.data) == (WSMsgType.CLOSE, 1013)
