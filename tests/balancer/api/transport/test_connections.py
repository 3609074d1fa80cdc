"""Connections over real sockets: too slow, too many, and left as they are."""

import asyncio
import json
import logging
import resource
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, ContentEncodingError
from aiohttp.web_protocol import RequestPayloadError
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.transport.connections import (
    BYTES_AT_ONCE,
    LINES_AT_ONCE,
    LOG_INTERVAL,
    LONGEST_REASON,
    SPARE_FILES,
    Connections,
    ConnectionsRunner,
    MalformedRequests,
    as_invalid_request,
    end_of_bytes,
    end_of_http,
    raise_file_limit,
    reason_of,
    watch_frames,
)
from arriero.shared.tls.contexts import ClientFiles, client_context, server_context
from arriero.shared.tls.key_pair import KeyPair
from tests.authority import Authority
from tests.balancer.fleet.recording import ManualClock
from tests.waiting import GivenTime, given_time, until

ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Served:
    """A port with one path, whose handler waits until it is told to answer."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.port = 0
        self.time: GivenTime
        self.num_read = 0
        """Bytes that its connections have got."""
        self.may_answer = asyncio.Event()
        self.num_asked = 0
        self.num_cancelled = 0
        self.floods: list[str] = []

    async def echo(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=await request.read())

    async def socket(self, request: web.Request) -> web.StreamResponse:
        """Sends back what comes."""
        socket = web.WebSocketResponse(decode_text=False)
        tasks = set[asyncio.Task[bool]]()

        def close(reason: str, code: int) -> None:
            self.floods.append(reason)
            tasks.add(asyncio.create_task(socket.close(code=code, message=reason.encode())))

        assert watch_frames(request, on_fault=close)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

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

    async def reads(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Sends `data`, and returns when it has been read."""
        expected = self.num_read + len(data)
        writer.write(data)
        await until(lambda: self.num_read == expected)


class Counted(asyncio.Protocol):
    """A connection's own protocol, of which the test knows how much it has read."""

    def __init__(self, served: Served, protocol: asyncio.Protocol) -> None:
        self._served = served
        self._protocol = protocol
        self.connection_made = protocol.connection_made  # type: ignore[method-assign]
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        self._served.num_read += len(data)
        self._protocol.data_received(data)


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Served]:
    """The port; time stands still inside, but for what the test lets pass."""
    connections = Connections(**limits)
    runner = ConnectionsRunner(app := web.Application(), connections, shutdown_timeout=0.1)
    loop = asyncio.get_running_loop()
    served = Served(connections)
    app.add_routes([web.get("/", served.handle), web.get("/flood", served.flood)])
    app.add_routes([web.post("/echo", served.echo), web.get("/socket", served.socket)])
    await runner.setup()
    make = cast("Callable[[], asyncio.Protocol]", runner.server)
    server = await loop.create_server(lambda: Counted(served, make()), "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        async with given_time() as served.time:
            yield served
    finally:
        server.close()
        await runner.cleanup()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


HEADER = 10.0
"""Seconds that a header may take here."""


async def test_a_connection_without_a_whole_header_is_closed() -> None:
    async with serving(header_timeout=HEADER) as served:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            reader, writer = await served.connect()
            writer.write(sent)
            await until(lambda: served.connections.num_open == 1)
            await served.time.passes(HEADER - 0.1)
            assert served.connections.num_open == 1
            await served.time.passes(0.1)
            assert await is_closed(reader)
            writer.close()
            await until(lambda: served.connections.num_open == 0)


async def test_a_header_in_drops_is_too_slow() -> None:
    async with serving(header_timeout=HEADER) as served:
        reader, writer = await served.connect()
        for drop in (b"GET / HTTP/1.1\r\n", *[b"X-Drop: 1\r\n"] * 9):
            await served.reads(writer, drop)
            assert served.connections.num_open == 1
            await served.time.passes(1.0)
        assert await is_closed(reader)
        writer.close()


async def test_an_answer_may_take_longer_than_a_header() -> None:
    async with serving(header_timeout=HEADER) as served:
        reader, writer = await served.connect()
        await served.reads(writer, ASK)
        await served.time.passes(3 * HEADER)
        served.may_answer.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_the_next_header_on_a_connection_has_its_own_time() -> None:
    async with serving(header_timeout=HEADER) as served:
        served.may_answer.set()
        reader, writer = await served.connect()
        writer.write(ASK)
        assert b"{}" in await reader.readuntil(b"{}")
        await served.time.passes(2 * HEADER)  # nothing was begun, so nothing is late
        writer.write(ASK)
        assert b"{}" in await reader.readuntil(b"{}")
        await served.reads(writer, ASK[:10])
        await served.time.passes(HEADER)
        assert await is_closed(reader)
        writer.close()


POST = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n"
MALFORMED = {
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header\r\n\r\n",
    "too long a line": b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"x" * 70_000),
    "no number of a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
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


async def test_a_body_that_nobody_reads_is_the_last_of_its_connection() -> None:
    async with serving() as served:
        for body in (b"", b"x" * 50_000):
            reader, writer = await served.connect()
            writer.write(POST + b"Content-Length: 100000\r\n\r\n" + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"\r\nConnection: close\r\n" in head
            writer.write(b"y" * (100_000 - len(body)))
            assert await reader.read() == b"404: Not Found"
            writer.close()


async def test_a_body_that_nobody_reads_and_that_is_whole_keeps_the_connection() -> None:
    async with serving() as served:
        reader, writer = await served.connect()
        for _ in range(3):
            writer.write(POST + b"Content-Length: 5\r\n\r\nhello")
            head = await reader.readuntil(b"404: Not Found")
            assert b"close" not in head
        writer.close()


async def test_nothing_is_inflated() -> None:
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(POST + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nxxxx")
        assert (await reader.readuntil(b"404: Not Found")).startswith(b"HTTP/1.1 404 ")
        writer.close()


async def test_a_connection_of_http_1_0_ends_with_its_answer() -> None:
    async with serving() as served:
        served.may_answer.set()
        reader, writer = await served.connect()
        writer.write(b"GET / HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 200 ")
        writer.close()


async def test_many_requests_at_once_are_answered_in_turn() -> None:
    async with serving() as served:
        served.may_answer.set()
        reader, writer = await served.connect()
        writer.write(ASK * 500)
        for _ in range(500):
            await reader.readuntil(b"{}")
        writer.close()
    assert served.num_asked == 500


@pytest.mark.parametrize("size", [1, 1000, 100_000])
async def test_a_body_comes_whole_however_it_is_cut(size: int) -> None:
    body = bytes(index % 251 for index in range(300_000))
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    if size == 1:
        chunks = chunks[:20_000]
    async with serving() as served:
        reader, writer = await served.connect()
        head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        writer.write(b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks))
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        whole = b"".join(chunks)
        assert await reader.readexactly(len(whole)) == whole
        writer.close()


async def test_messages_come_whole_and_a_flood_of_frames_is_cut() -> None:
    async with serving() as served, aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{served.port}/socket"
        async with http.ws_connect(url) as socket:
            for num_bytes in (1, 200_000, 3_000_000):
                await socket.send_bytes(b"x" * num_bytes)
                assert await socket.receive_bytes() == b"x" * num_bytes
            for number in range(2_000):
                await socket.send_str(f"the message {number:8}")
            for number in range(2_000):
                assert await socket.receive_bytes() == f"the message {number:8}".encode()
            assert served.floods == []
            for _ in range(500):
                await socket.pong()
            closed = await socket.receive()
            assert (closed.data, closed.extra) == (1008, "too many pings and pongs")
        assert served.connections.num_flooded == 1


async def test_frames_that_come_with_the_header_are_counted_as_well() -> None:
    async with serving() as served:
        _, writer = await served.connect()
        writer.write(
            b"GET /socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + b"\x8a\x80mask" * 500
        )
        await until(lambda: served.floods == ["too many pings and pongs"])
        writer.close()


async def test_a_frame_without_a_mask_is_a_fault_of_the_protocol() -> None:
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(
            b"GET /socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + b"\x81\x02hi"
        )
        await reader.readuntil(b"\r\n\r\n")
        reason = b"a frame of a client must be masked"
        close = b"\x88" + bytes([2 + len(reason)]) + (1002).to_bytes(2, "big") + reason
        assert await reader.readexactly(len(close)) == close
        writer.close()


async def test_a_client_that_stops_reading_is_cut_off_and_its_handler_cancelled() -> None:
    async with serving(write_timeout=10.0) as served:
        _, writer = await served.connect()
        writer.write(ASK.replace(b"/ ", b"/flood ", 1))
        writer.transport.pause_reading()
        await served.time.passes_until(lambda: served.num_cancelled, step=10.0)
        await until(lambda: served.connections.num_open == 0)
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


async def test_one_address_that_has_most_makes_room_for_another() -> None:
    """Its longest idle connection is closed; one with a request, and others', are not."""
    async with serving(max_connections=3) as served:
        busy_reader, busy = await served.connect(local_addr=("127.0.0.2", 0))
        busy.write(ASK)
        await until(lambda: served.num_asked == 1)
        idle = [await served.connect(local_addr=("127.0.0.2", 0)) for _ in range(2)]
        reader, writer = await served.connect()
        assert await is_closed(idle[0][0])
        writer.write(ASK)
        await until(lambda: served.num_asked == 2)
        again, refused = await served.connect(local_addr=("127.0.0.2", 0))
        refused.write(ASK)
        assert (await again.read()).startswith(b"HTTP/1.1 503 ")
        assert served.connections.shares.num_refused["evicted"] == 1
        assert served.connections.shares.num_refused["full"] == 1
        served.may_answer.set()
        for each in (busy_reader, reader):
            assert (await each.readline()).startswith(b"HTTP/1.1 200")
        for each in (busy, writer, refused, *(writer for _, writer in idle)):
            each.close()
        await until(lambda: served.connections.num_open == 0)
    assert served.connections.shares.total == 0


async def test_far_too_many_are_closed_and_silent_ones_too() -> None:
    async with serving(max_connections=1, header_timeout=HEADER) as served:
        opened = [await served.connect() for _ in range(4)]
        for reader, _ in opened[2:]:
            assert await is_closed(reader)
        await served.time.passes(HEADER)
        for reader, _ in opened[:2]:
            assert await is_closed(reader)
        for _, writer in opened:
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
        async with serving(tls=tls, header_timeout=HEADER) as served:
            for sent in (b"", b"\x16\x03\x01"):
                reader, writer = await served.connect()
                await served.reads(writer, sent)
                await until(lambda: served.connections.num_open == 1)
                await served.time.passes(HEADER)
                assert await is_closed(reader)
                writer.close()
                await until(lambda: served.connections.num_open == 0)

    async def test_a_header_after_the_handshake_has_its_time_as_well(
        self, tls: Callable[[], ssl.SSLContext], client: ssl.SSLContext
    ) -> None:
        async with serving(tls=tls, header_timeout=HEADER) as served:
            reader, writer = await served.connect(ssl=client, server_hostname="localhost")
            writer.write(ASK[:10])
            closed = asyncio.create_task(is_closed(reader))
            await served.time.passes_until(closed.done, step=HEADER)
            assert await closed
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
        async with serving(tls=tls, write_timeout=10.0) as served:
            _, writer = await served.connect(ssl=client, server_hostname="localhost")
            writer.write(ASK.replace(b"/ ", b"/flood ", 1))
            writer.transport.pause_reading()
            await served.time.passes_until(lambda: served.num_cancelled, step=10.0)
            await until(lambda: served.connections.num_open == 0)
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


def parts(data: bytes) -> list[bytes]:
    found, start = [], 0
    while start < len(data):
        end = end_of_http(data, start)
        assert end > start, "it goes on"
        found.append(data[start:end])
        start = end
    return found


@given(
    st.lists(st.tuples(st.sampled_from([b"\n", b"1\r\nx\r\n", b"a" * 900]), st.integers(1, 3000)))
)
def test_every_part_is_bounded_and_nothing_is_lost(runs: list[tuple[bytes, int]]) -> None:
    data = b"".join(text * times for text, times in runs)
    found = parts(data)
    assert b"".join(found) == data
    assert all(len(part) <= BYTES_AT_ONCE for part in found)
    assert all(part.count(b"\n") <= LINES_AT_ONCE for part in found)


def test_an_ordinary_request_is_read_at_once() -> None:
    head = b"POST / HTTP/1.1\r\n" + b"X-Name: value\r\n" * 40 + b"\r\n" + b"{}" * 10_000
    assert end_of_http(head, 0) == len(head)


def test_lines_of_a_body_cost_nothing() -> None:
    assert end_of_bytes(b"\n" * 100_000, 0) == BYTES_AT_ONCE
    assert end_of_bytes(b"\n" * 100_000, 99_990) == 100_000


ERROR = BadHttpMessage("Invalid header token:\n\n  b'Bad Header'\n       ^")


def test_the_reason_is_one_line_of_bounded_length() -> None:
    assert reason_of(ERROR) == "Invalid header token: b'Bad Header' ^"
    assert reason_of(BadHttpMessage("x" * 70_000)) == "x" * LONGEST_REASON


def test_the_reason_of_a_body_is_what_its_parser_said() -> None:
    error = RequestPayloadError("400, message:\n  not gzip")
    error.__cause__ = ContentEncodingError("not gzip")
    assert reason_of(error) == "not gzip"
    assert reason_of(RequestPayloadError("cut off")) == "cut off"


def test_the_answer_names_the_reason() -> None:
    error = as_invalid_request(ERROR)
    assert str(error) == "this is not valid HTTP: Invalid header token: b'Bad Header' ^"


def test_one_line_in_an_interval_counts_those_before_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="arriero.balancer.api.transport.connections")
    clock = ManualClock()
    malformed = MalformedRequests(clock)
    malformed.log("192.0.2.7", ERROR)
    for _ in range(5):
        malformed.log("192.0.2.8", ERROR)
    clock.now += LOG_INTERVAL
    malformed.log("192.0.2.9", ERROR)
    clock.now += LOG_INTERVAL
    malformed.log("192.0.2.7", ERROR)
    assert [record.levelname for record in caplog.records] == ["INFO"] * 3
    assert all(record.exc_info is None for record in caplog.records)
    assert [record.__dict__["context"] for record in caplog.records] == [
        {"peer": "192.0.2.7"},
        {"peer": "192.0.2.9", "not_logged_before": 5},
        {"peer": "192.0.2.7"},
    ]


# ---- the limit of open files, of which each test sets its own


class FileLimits:
    def __init__(self, soft: int, hard: int) -> None:
        self.values = (soft, hard)

    def getrlimit(self, _which: int) -> tuple[int, int]:
        return self.values

    def setrlimit(self, _which: int, values: tuple[int, int]) -> None:
        self.values = values


def limited(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> FileLimits:
    limits = FileLimits(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limits.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", limits.setrlimit)
    return limits


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (1024, 1_000_000, 8192 + SPARE_FILES),
        (1024, resource.RLIM_INFINITY, 8192 + SPARE_FILES),
        (1_000_000, 1_000_000, 1_000_000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ],
)
def test_the_limit_is_raised_as_far_as_needed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    expected: int,
) -> None:
    limits = limited(monkeypatch, soft, hard)
    assert raise_file_limit(8192) == expected
    assert limits.values == (expected, hard)
    assert not caplog.records


def test_a_limit_that_stays_too_low_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = limited(monkeypatch, 256, 4096)
    with caplog.at_level(logging.WARNING):
        assert raise_file_limit(8192) == 4096
    assert limits.values == (4096, 4096)
    [record] = caplog.records
    assert "the process may open 4096 files, but 8192 connections need 8256" in record.getMessage()
