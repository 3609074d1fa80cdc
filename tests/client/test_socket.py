import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from arriero.client.answers import Done, Token
from arriero.client.client import Client
from arriero.client.errors import RequestFailed, Unreachable
from arriero.client.retries import NEVER
from arriero.client.socket import MAX_UNREAD, Socket
from tests.client.fakes import FakeServer
from tests.client.test_answers import DONE
from tests.waiting import HANGS


class Peer:
    """The balancer's end of one socket."""

    def __init__(self) -> None:
        self.socket = web.WebSocketResponse()
        self.has_ended = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        await self.socket.prepare(request)
        self.is_open.set()
        await self.has_ended.wait()
        return self.socket

    is_open: asyncio.Event

    async def next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self.socket.receive_json(timeout=HANGS)
        return message

    async def event(self, id: str, **fields: Any) -> None:
        params = {"id": id, **fields}
        await self.socket.send_json({"jsonrpc": "2.0", "method": "event", "params": params})

    async def token(self, id: str, text: str) -> None:
        await self.event(id, event="token", kind="content", text=text)

    async def result(self, id: str, result: object) -> None:
        await self.socket.send_json({"jsonrpc": "2.0", "id": id, "result": result})


@pytest.fixture
async def pair(server: FakeServer) -> AsyncIterator[tuple[Socket, Peer]]:
    peer = Peer()
    peer.is_open = asyncio.Event()
    server.will(peer.serve)
    async with Client(server.url, retries=NEVER) as client, client.socket() as socket:
        await peer.is_open.wait()
        yield socket, peer
        peer.has_ended.set()


async def test_streams_side_by_side(pair: tuple[Socket, Peer]) -> None:
    socket, peer = pair
    one, two = socket.stream(prompt="1"), socket.stream(prompt="2")
    waiting = asyncio.gather(anext(one), anext(two))
    first, second = await peer.next(), await peer.next()
    assert (first["method"], first["params"]) == ("generate", {"prompt": "1", "stream": True})
    await peer.token(second["id"], "b")
    await peer.token(first["id"], "a")
    assert await waiting == [Token(text="a"), Token(text="b")]
    await peer.result(first["id"], DONE)
    [end] = [event async for event in one]
    assert isinstance(end, Done)
    await two.aclose()
    cancel = await peer.next()
    assert (cancel["method"], cancel["params"]) == ("cancel", {"id": second["id"]})
    assert "id" not in cancel


async def test_what_nobody_reads_is_bounded(pair: tuple[Socket, Peer]) -> None:
    socket, peer = pair
    stream = socket.stream(prompt="p")
    beginning = asyncio.create_task(anext(stream))
    id = (await peer.next())["id"]
    await peer.token(id, "x")
    await beginning
    for _ in range(3 * MAX_UNREAD):
        await peer.token(id, "y")
    pinging = asyncio.create_task(socket.ping())
    await peer.result((await peer.next())["id"], {"pong": True})
    await pinging  # whatever came before has been read
    await peer.result(id, DONE)
    events = [event async for event in stream]
    texts = [event.text for event in events if isinstance(event, Token)]
    assert (len(texts), "".join(texts)) == (MAX_UNREAD, "y" * 3 * MAX_UNREAD)


async def test_an_error_ends_its_call_alone(pair: tuple[Socket, Peer]) -> None:
    socket, peer = pair
    bad, good = (asyncio.create_task(socket.generate(prompt=word)) for word in "ab")
    first, second = await peer.next(), await peer.next()
    error = {"code": -32602, "message": "no", "data": {"code": "invalid_request"}}
    await peer.socket.send_json({"jsonrpc": "2.0", "id": first["id"], "error": error})
    with pytest.raises(RequestFailed, match="invalid_request"):
        await bad
    await peer.token(second["id"], "yes")
    await peer.result(second["id"], DONE)
    assert (await good).text == "yes"


async def test_a_closed_socket_ends_every_call(pair: tuple[Socket, Peer]) -> None:
    socket, peer = pair
    calls = [asyncio.create_task(socket.generate(prompt=word)) for word in "ab"]
    await peer.next(), await peer.next()
    await peer.socket.close()
    for call in calls:
        with pytest.raises(Unreachable):
            await call
    with pytest.raises(Unreachable, match="closed"):
        await socket.ping()
