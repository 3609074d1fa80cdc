"""Frames as a client reads them; waiting for one that does not read."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.transport.sockets import FrameWriter
from tests.waiting import HANGS

Play = Callable[[FrameWriter, web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def played(play: Play) -> AsyncIterator[ClientWebSocketResponse]:
    """The client of a WebSocket on which the server plays `play`."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async with asyncio.TaskGroup() as tasks:
            await play(FrameWriter(request, socket, tasks), socket)
        return socket

    app = web.Application()
    app.add_routes([web.get("/", handle)])
    async with (
        TestClient(TestServer(app)) as client,
        client.ws_connect("/", max_msg_size=0) as socket,
        asyncio.timeout(HANGS),
    ):
        yield socket


TURNS = 1000
"""Of the event loop, in each of which the sockets take what they can; far more than they need."""


async def fill(frames: FrameWriter) -> None:
    """Writes until there is no room, however often the client's socket takes some."""
    has_room = True
    while has_room:
        frames.write(b"x" * 100_000)
        drained = asyncio.create_task(frames.drained())
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if drained.done():
                break
        has_room = drained.done()
        drained.cancel()


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65535, 65536, 1_000_000])
async def test_a_frame_of_any_length_arrives_whole(length: int) -> None:
    text = "x" * length

    async def play(frames: FrameWriter, _socket: web.WebSocketResponse) -> None:
        frames.write(text.encode())
        frames.write(b"next")

    async with played(play) as client:
        assert await client.receive_str() == text
        assert await client.receive_str() == "next"


async def test_there_is_no_room_until_the_client_has_read() -> None:
    is_full = asyncio.Event()

    async def play(frames: FrameWriter, _socket: web.WebSocketResponse) -> None:
        await fill(frames)
        is_full.set()
        await frames.drained()
        has_room.append(frames.write(b"last"))

    has_room: list[bool] = []
    async with played(play) as client:
        await is_full.wait()
        while (await client.receive_str()) != "last":
            pass
    assert has_room == [True]


async def test_a_call_that_is_cancelled_while_it_waits_takes_no_other_with_it() -> None:
    is_full = asyncio.Event()

    async def play(frames: FrameWriter, _socket: web.WebSocketResponse) -> None:
        await fill(frames)
        waits = [asyncio.create_task(frames.drained()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await asyncio.sleep(0)
        is_full.set()
        await asyncio.wait(waits)
        are_cancelled.extend(task.cancelled() for task in waits)
        frames.write(b"last")

    are_cancelled: list[bool] = []
    async with played(play) as client:
        await is_full.wait()
        while (await client.receive_str()) != "last":
            pass
    assert are_cancelled == [True, False, False]


async def test_nothing_is_written_after_the_close() -> None:
    answers: list[bool] = []

    async def play(frames: FrameWriter, socket: web.WebSocketResponse) -> None:
        await socket.close()
        answers.append(frames.write(b"late"))

    async with played(play) as client:
        assert (await client.receive()).type is WSMsgType.CLOSE
        assert (await client.receive()).type is WSMsgType.CLOSED
    assert answers == [True]
