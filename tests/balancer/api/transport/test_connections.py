"""Connections over real sockets: too slow, too many, and left as they are."""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from arriero.balancer.api.transport.connections import Connections, ConnectionsRunner
from arriero.shared.tls.contexts import ClientFiles, client_context, server_context
from arriero.shared.tls.key_pair import KeyPair
from tests.authority import Authority

ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Served:
    """A port with one path, whose handler waits until it is told to answer."""

    def __init__(self, connections: Connections, port: int) -> None:
        self.connections = connections
        self.port = port
        self.may_answer = asyncio.Event()
        self.num_asked = 0
        self.num_cancelled = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.num_asked += 1
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        return web.json_response({})

    async def flood(self, request: web.Request) -> web.StreamResponse:
        """Writes more than any client's buffers hold, as long as it is read."""
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 100_000)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise

    async def connect(self, **tls: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, **tls)


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Served]:
    connections = Connections(**limits)
    served = Served(connections, 0)
    app = web.Application()
    app.add_routes([web.get("/", served.handle), web.get("/flood", served.flood)])
    runner = ConnectionsRunner(app, connections, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        served.port = runner.addresses[0][1]
        async with asyncio.timeout(20):
            yield served
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(5):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


async def test_a_connection_without_a_whole_header_is_closed() -> None:
    async with serving(header_timeout=0.1) as served:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            reader, writer = await served.connect()
            writer.write(sent)
            assert await is_closed(reader)
            writer.close()
        await until(lambda: served.connections.num_open == 0)


async def test_a_header_in_drops_is_too_slow() -> None:
    async with serving(header_timeout=0.1) as served:
        reader, writer = await served.connect()
        closed = asyncio.create_task(is_closed(reader))
        writer.write(b"GET / HTTP/1.1\r\n")
        while not closed.done():
            writer.write(b"X-Drop: 1\r\n")
            await asyncio.sleep(0.01)
        assert await closed
        writer.close()


async def test_an_answer_may_take_longer_than_a_header() -> None:
    async with serving(header_timeout=0.05) as served:
        reader, writer = await served.connect()
        writer.write(ASK)
        await asyncio.sleep(0.15)  # three times what a header may take
        served.may_answer.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_the_next_header_on_a_connection_has_its_own_time() -> None:
    async with serving(header_timeout=0.1) as served:
        served.may_answer.set()
        reader, writer = await served.connect()
        writer.write(ASK)
        assert b"{}" in await reader.readuntil(b"{}")
        await asyncio.sleep(0.2)  # nothing was begun, so nothing is late
        writer.write(ASK)
        assert b"{}" in await reader.readuntil(b"{}")
        writer.write(ASK[:10])
        assert await is_closed(reader)
        writer.close()


POST = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n"
MALFORMED = {
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header\r\n\r\n",
    "too long a line": b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"x" * 70_000),
    "no number of a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
    "no encoding of ours": POST + b"Content-Encoding: br\r\nContent-Length: 4\r\n\r\nxxxx",
    "noise": bytes(range(256)),
}


@pytest.mark.parametrize("kind", MALFORMED)
async def test_what_is_not_http_is_answered_and_no_error_of_ours(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(MALFORMED[kind])
        head, body = (await reader.read()).split(b"\r\n\r\n", 1)
        writer.close()
    assert b" 400 " in head.splitlines()[0]
    assert json.loads(body)["error"]["code"] == "invalid_request"
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("INFO", None)
    assert record.__dict__["context"] == {"peer": "127.0.0.1"}
    assert len(record.getMessage()) < 300


async def test_a_body_that_is_malformed_and_that_nobody_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(POST + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nxxxx")
        assert (await reader.read()).startswith(b"HTTP/1.1 404 ")
        writer.close()
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("INFO", None)
    assert "gzip" in record.getMessage()


async def test_a_client_that_stops_reading_is_cut_off_and_its_handler_cancelled() -> None:
    async with serving(write_timeout=0.1) as served:
        _, writer = await served.connect()
        writer.write(ASK.replace(b"/ ", b"/flood ", 1))
        writer.transport.pause_reading()
        await until(lambda: served.num_cancelled == 1 and served.connections.num_open == 0)
        writer.close()


async def test_one_connection_too_many_is_answered() -> None:
    async with serving(max_connections=1) as served:
        _, first = await served.connect()
        first.write(ASK)
        await until(lambda: served.num_asked == 1)
        reader, writer = await served.connect()
        writer.write(ASK)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"overloaded"' in answer
        writer.close()
        await until(lambda: served.connections.num_open == 1)
        first.close()
        await until(lambda: served.connections.num_open == 0)
        served.may_answer.set()
        reader, writer = await served.connect()
        writer.write(ASK)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_far_too_many_are_closed_and_silent_ones_too() -> None:
    async with serving(max_connections=1, header_timeout=0.1) as served:
        opened = [await served.connect() for _ in range(4)]
        for reader, writer in opened:
            assert await is_closed(reader)
            writer.close()
        await until(lambda: served.connections.num_open == 0)


class TestTls:
    """The same limits, with TLS between TCP and HTTP."""

    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path)

    @pytest.fixture
    def tls(self, authority: Authority) -> Callable[[], ssl.SSLContext]:
        files = authority.sign("server")
        context = server_context(KeyPair(files.cert, files.key), time.time()).context
        return lambda: context

    @pytest.fixture
    def client(self, authority: Authority) -> ssl.SSLContext:
        return client_context(ClientFiles(authority.ca), time.time())

    async def test_requests_are_answered(
        self, tls: Callable[[], ssl.SSLContext], client: ssl.SSLContext
    ) -> None:
        async with serving(tls=tls) as served, aiohttp.ClientSession() as http:
            served.may_answer.set()
            url = f"https://localhost:{served.port}/"
            for _ in range(2):
                async with http.get(url, ssl=client) as response:
                    assert (response.status, await response.json()) == (200, {})
            assert served.connections.num_open == 1

    async def test_a_slow_handshake_is_cut_and_no_longer_counts(
        self, tls: Callable[[], ssl.SSLContext]
    ) -> None:
        async with serving(tls=tls, header_timeout=0.1) as served:
            for sent in (b"", b"\x16\x03\x01"):
                reader, writer = await served.connect()
                writer.write(sent)
                await until(lambda: served.connections.num_open == 1)
                assert await is_closed(reader)
                writer.close()
                await until(lambda: served.connections.num_open == 0)

    async def test_a_header_after_the_handshake_has_its_time_as_well(
        self, tls: Callable[[], ssl.SSLContext], client: ssl.SSLContext
    ) -> None:
        async with serving(tls=tls, header_timeout=0.1) as served:
            reader, writer = await served.connect(ssl=client, server_hostname="localhost")
            writer.write(ASK[:10])
            assert await is_closed(reader)
            writer.close()
            await until(lambda: served.connections.num_open == 0)

    async def test_plain_http_gets_a_sentence_and_the_log_a_line(
        self, tls: Callable[[], ssl.SSLContext], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        times = iter([0.0, 0.5, 0.9])
        async with serving(tls=tls, clock=lambda: next(times)) as served:
            for _ in range(3):
                reader, writer = await served.connect()
                writer.write(ASK)
                head, body = (await reader.read()).split(b"\r\n\r\n", 1)
                assert head.startswith(b"HTTP/1.1 400 ")
                assert "use https://" in json.loads(body)["error"]["message"]
                writer.close()
            await until(lambda: served.connections.num_open == 0)
        [record] = caplog.records
        assert "does not speak TLS" in record.getMessage()

    async def test_one_too_many_is_answered_and_far_too_many_are_not(
        self, tls: Callable[[], ssl.SSLContext], client: ssl.SSLContext
    ) -> None:
        async with serving(tls=tls, max_connections=1) as served:
            _, first = await served.connect(ssl=client, server_hostname="localhost")
            reader, second = await served.connect(ssl=client, server_hostname="localhost")
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await served.connect(ssl=client, server_hostname="localhost")
            second.write(ASK)
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
            for writer in (first, second):
                writer.close()
            await until(lambda: served.connections.num_open == 0)

    async def test_a_client_that_stops_reading_is_cut_off(
        self, tls: Callable[[], ssl.SSLContext], client: ssl.SSLContext
    ) -> None:
        async with serving(tls=tls, write_timeout=0.1) as served:
            _, writer = await served.connect(ssl=client, server_hostname="localhost")
            writer.write(ASK.replace(b"/ ", b"/flood ", 1))
            writer.transport.pause_reading()
            await until(lambda: served.num_cancelled == 1 and served.connections.num_open == 0)
            writer.transport.abort()

    async def test_handshakes_do_not_outlive_the_port(
        self, tls: Callable[[], ssl.SSLContext]
    ) -> None:
        async with serving(tls=tls) as served:
            reader, writer = await served.connect()
            await until(lambda: served.connections.num_open == 1)
        assert await is_closed(reader)
        writer.close()
        await until(lambda: served.connections.num_open == 0)
