"""A proxy on the way out: which addresses it is for, and both sides that go through it."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from arriero.agent.link.dialling import DialFailed, dial
from arriero.agent.outgoing_proxy import proxy_for
from arriero.agent.upstream.client import Client
from arriero.agent.upstream.protocol.address import ApiAddress

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("wss://lb.example:8060", "http://secure:3128"),
        ("https://api.example/v1", "http://secure:3128"),
        ("ws://lb.example:8060", "http://plain:3128"),
        ("http://10.0.0.9:8080", "http://plain:3128"),
        ("ws://lb.inside.example:8060", None),
        ("ws://10.0.0.7:8060", None),
        ("ws://127.0.0.1:8060", None),
        ("ws://127.8.8.8:8060", None),
        ("ws://[::1]:8060", None),
        ("wss://localhost:8060", None),
    ],
)
def test_the_environment_says_which_proxy(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str | None
) -> None:
    assert proxy_for(url) is None
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:3128")
    monkeypatch.setenv("http_proxy", "http://plain:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example,10.0.0.7")
    assert proxy_for(url) == proxy


class Proxy:
    """A proxy of HTTP and of CONNECT, for which every name stands for this host."""

    def __init__(self, *, status: int = 200) -> None:
        self.status = status
        self.asked: list[str] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            yield f"http://someone:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.partition("\r\n")[0])
        if self.status != 200:
            writer.write(f"HTTP/1.1 {self.status} No\r\nContent-Length: 0\r\n\r\n".encode())
        elif head.startswith("CONNECT "):
            port = int(head.split()[1].rpartition(":")[2])
            there, back = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, back))
                group.create_task(_copy(there, writer))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def balancer() -> AsyncIterator[int]:
    """The port of something that takes WebSockets."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/", answer)
    async with TestServer(app) as server:
        assert server.port is not None
        yield server.port


async def test_a_balancer_is_dialled_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    async with balancer() as port, proxy.serving() as address:
        monkeypatch.setenv("HTTP_PROXY", address)
        socket = await dial(f"ws://lb.example:{port}/", address="192.0.2.1")
        socket.abort()
    assert proxy.asked == [f"CONNECT lb.example:{port} HTTP/1.1"]


async def test_a_refusal_of_it_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Proxy(status=407).serving() as address:
        monkeypatch.setenv("HTTP_PROXY", address)
        with pytest.raises(DialFailed, match="answers with status 407") as refused:
            await dial("ws://lb.example:1/")
    monkeypatch.setenv("HTTP_PROXY", address.replace("http:", "ftp:"))
    with pytest.raises(DialFailed, match="must begin with http://") as invalid:
        await dial("ws://lb.example:1/")
    assert "secret" not in f"{refused.value}{invalid.value}"


async def test_an_upstream_is_asked_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    async with proxy.serving() as address:
        monkeypatch.setenv("HTTP_PROXY", address)
        async with Client(ApiAddress.of("http://api.example:8080")) as client:
            assert await client.get("http://api.example:8080/v1/models", within=30) == b"hi"
    assert proxy.asked == ["GET http://api.example:8080/v1/models HTTP/1.1"]
