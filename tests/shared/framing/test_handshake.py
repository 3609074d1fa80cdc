"""Requests that ask for a WebSocket, and those that only look so."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from arriero.shared.framing.handshake import is_handshake

ASKING = {
    "Host": "x",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def serve(request: web.Request) -> web.Response:
        return web.Response(status=200 if is_handshake(web.WebSocketResponse(), request) else 400)

    app = web.Application()
    app.add_routes([web.get("/", serve)])
    async with TestServer(app) as server:
        yield server


async def status(server: TestServer, headers: dict[str, str]) -> int:
    """The answer to a request with these headers; bytes above 127 are sent as they are."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(["GET / HTTP/1.1", *lines, "", ""])
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(head.encode("latin-1"))
        answer = await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()
    return int(answer.split()[1])


async def test_a_handshake(server: TestServer) -> None:
    assert await status(server, ASKING) == 200
    assert await status(server, {"Host": "x"}) == 400


@pytest.mark.parametrize("name", list(ASKING)[1:])
async def test_bytes_that_are_no_text(server: TestServer, name: str) -> None:
    assert await status(server, ASKING | {name: "\xff\xfe"}) == 400
