import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from arriero.balancer.api.transport.http import middleware
from arriero.balancer.api.transport.streaming import (
    Render,
    prefers_event_stream,
    send_events,
    send_stream,
)
from arriero.balancer.api.transport.text_frame import FrameOf, TextFrame, no_frame
from arriero.balancer.fleet.runtime.stream import MAX_PENDING, Stream
from arriero.shared.errors import Cancelled, QueueTimeout
from arriero.shared.inference import (
    Event,
    Failed,
    LogProb,
    Notice,
    RequestId,
    Token,
    TokenKind,
    TokenLogProbs,
)
from tests.balancer.api.fake_runtime import done
from tests.balancer.api.pushed import Client, pusher
from tests.waiting import HANGS


@pytest.mark.parametrize(
    ("accept", "is_sse"),
    [
        ("", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json", False),
        ("application/x-ndjson", False),
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, */*;q=0.1", True),
        ("application/json, text/event-stream", True),
        ("text/event-stream;q=0.5, application/x-ndjson", False),
        ("application/json;q=0.5, text/event-stream;q=0.6", True),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=x", False),
    ],
)
def test_what_accept_prefers(accept: str, is_sse: bool) -> None:
    assert prefers_event_stream(accept) is is_sse


@given(st.text() | st.text(alphabet=";,=q.0123456789 /*").map("text/event-stream;q=".__add__))
def test_any_accept_header_is_taken(accept: str) -> None:
    assert prefers_event_stream(accept) in (True, False)


async def ask(*chunks: bytes | Exception) -> tuple[int, bytes]:
    async def produce() -> AsyncIterator[bytes]:
        for chunk in chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def handler(request: web.Request) -> web.StreamResponse:
        return await send_stream(request, produce(), content_type="text/plain")

    app = web.Application(middlewares=[middleware()])
    app.add_routes([web.get("/", handler)])
    async with TestClient(TestServer(app)) as client:
        response = await client.get("/")
        return response.status, await response.read()


async def test_chunks_go_out_in_order() -> None:
    assert await ask(b"a", b"b", b"c") == (200, b"abc")


async def test_an_error_before_the_first_chunk_is_a_status() -> None:
    status, body = await ask(QueueTimeout("too long"))
    assert status == 504
    assert b"queue_timeout" in body


# ---- pushed events


END = Failed(Cancelled("over"))


def spelled(event: Event) -> bytes:
    return event.text.encode() if isinstance(event, Token) else b"."


class Served:
    """A server whose one request streams what the test puts."""

    def __init__(self, render: Render = spelled) -> None:
        self.closed: list[RequestId] = []
        self.stream = Stream(RequestId("r"), self.closed.append)
        self.response: asyncio.Future[web.StreamResponse] = asyncio.Future()
        self._render = render

    async def handle(self, request: web.Request) -> web.StreamResponse:
        with self.stream:
            return await send_events(request, self.stream, self._render, content_type="text/plain")

    @asynccontextmanager
    async def client(self) -> AsyncIterator[TestClient]:
        app = web.Application(middlewares=[middleware()])
        app.add_routes([web.get("/", self.handle)])
        async with TestClient(TestServer(app)) as client:
            yield client


async def test_each_token_is_written_as_it_is_put() -> None:
    served = Served()
    async with served.client() as client, asyncio.timeout(HANGS):
        served.stream.put(Token(""))
        served.stream.put(Token("a"))
        response = await client.get("/")
        assert await response.content.readexactly(1) == b"a"
        for word in (b"bc", b"d"):
            served.stream.put(Token(word.decode()))
            assert await response.content.readexactly(len(word)) == word
        served.stream.put(END)
        assert await response.read() == b"."


async def test_a_client_without_chunks_gets_the_bare_bytes() -> None:
    served = Served()
    async with served.client() as client, asyncio.timeout(HANGS):
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        served.stream.put(Token("a"))
        assert (await reader.readuntil(b"\r\n\r\na")).startswith(b"HTTP/1.0 200 OK")
        served.stream.put(Token("b"))
        assert await reader.readexactly(1) == b"b"
        served.stream.put(END)
        assert await reader.read() == b"."
        writer.close()


async def test_an_error_before_the_first_bytes_is_a_status_of_pushed_events() -> None:
    def refuse(event: Event) -> bytes:
        if isinstance(event, Failed):
            raise event.error
        return b""

    served = Served(refuse)
    served.stream.put(Token(""))
    served.stream.put(Failed(QueueTimeout("too long")))
    async with served.client() as client, asyncio.timeout(HANGS):
        assert (await client.get("/")).status == 504


async def test_a_disconnect_closes_the_stream() -> None:
    served = Served()
    gone = asyncio.Event()
    served.stream = Stream(RequestId("r"), lambda id: gone.set())
    async with served.client() as client, asyncio.timeout(HANGS):
        served.stream.put(Token("a"))
        response = await client.get("/")
        await response.content.readexactly(1)
        response.close()
        await gone.wait()
        served.stream.put(Token("late"))


async def test_what_cannot_be_rendered_cuts_its_own_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: Event) -> bytes:
        if event == Token("b"):
            raise ValueError("cannot be rendered")
        return spelled(event)

    served = Served(fail)
    async with served.client() as client, asyncio.timeout(HANGS):
        served.stream.put(Token("a"))
        response = await client.get("/")
        await response.content.readexactly(1)
        with caplog.at_level(logging.ERROR):
            served.stream.put(Token("b"))
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
    assert served.closed == ["r"]
    assert "cannot be rendered" in caplog.text


async def test_a_client_that_does_not_read_makes_tokens_wait_and_merge() -> None:
    served = Served()
    async with served.client() as client, asyncio.timeout(HANGS):
        reader, writer = await asyncio.open_connection(client.host, client.port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        served.stream.put(Token("a"))
        await reader.readuntil(b"\r\n\r\n")
        num_put = 0
        while not served.stream.num_pending:
            served.stream.put(Token("b" * 1000))
            num_put += 1
            await asyncio.sleep(0)
        for _ in range(1000):
            served.stream.put(Token("b" * 1000))
            await asyncio.sleep(0)
        num_put += 1000
        assert served.stream.num_pending <= MAX_PENDING
        served.stream.put(END)
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += await reader.read(2**16)
        assert answer.count(b"b") >= 1000 * num_put
        assert b"1\r\n.\r\n0\r\n\r\n" in answer
        writer.close()


LOG_PROBS = (TokenLogProbs(LogProb(1, b"a", -0.5)),)


def starts(kind: TokenKind) -> bytes:
    return b"<%b " % kind.encode()


def render(event: Event) -> bytes:
    """Tokens in frames by their kinds; those with log-probabilities say so."""
    if isinstance(event, Token):
        if event.is_silent:
            return b""
        more = b" and more" if event.log_probs else b""
        return starts(event.kind) + to_json(event.text) + more + b">"
    return b"" if isinstance(event, Notice) else b"[end]"


class Spelling:
    """Renders as `render`, and counts how often it had to."""

    def __init__(self) -> None:
        self.num_rendered = 0
        self.kept: list[str] = []

    def __call__(self, event: Event) -> bytes:
        self.num_rendered += 1
        return render(event)

    def frame_of(self, kind: TokenKind) -> TextFrame | None:
        return None if kind == "prompt" else TextFrame(kind, starts(kind), b">", self.kept.append)


def chunks(data: Sequence[bytes]) -> list[bytes]:
    return [b"%x\r\n%b\r\n" % (len(each), each) for each in data]


KINDS: tuple[TokenKind, ...] = ("content", "reasoning", "tool_call", "prompt")
TOKENS = st.builds(
    Token,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.sampled_from(KINDS),
    log_probs=st.sampled_from([(), (), LOG_PROBS]),
)


SAME = TOKENS.flatmap(lambda token: st.lists(st.just(token), min_size=1, max_size=3))
EVENTS = st.lists(SAME | st.just([Notice("a", "b")]), max_size=4).map(chain.from_iterable).map(list)


@given(EVENTS, st.booleans())
def test_frames_write_what_rendering_does(events: list[Event], is_chunked: bool) -> None:
    client, spelling = Client(), Spelling()
    pushes = pusher(client, spelling, spelling.frame_of, is_chunked=is_chunked)
    for event in events:
        assert pushes.take(event)
    expected = [data for event in events if (data := render(event))]
    assert client.written == (chunks(expected) if is_chunked else expected)
    framed = spelling.num_rendered + len(spelling.kept)
    assert framed == len(events)


def test_only_the_first_token_of_a_kind_is_rendered() -> None:
    client, spelling = Client(), Spelling()
    pushes = pusher(client, spelling, spelling.frame_of)
    for text in ("a", "b", "\n"):
        pushes.take(Token(text))
    assert spelling.num_rendered == 1
    assert spelling.kept == ["b", "\n"]
    assert client.written == chunks([b'<content "a">', b'<content "b">', b'<content "\\n">'])


def test_after_another_event_a_frame_is_asked_for_again() -> None:
    spelling = Spelling()
    pushes = pusher(Client(), spelling, spelling.frame_of)
    for event in (Token("a"), Notice("a", "b"), Token("c")):
        pushes.take(event)
    assert spelling.num_rendered == 3


@pytest.mark.parametrize("end", [done("stop"), Failed(Cancelled("over"))])
def test_the_last_bytes_are_left_to_be_written_with_the_end(end: Event) -> None:
    client = Client()
    pushes = pusher(client, render)
    pushes.take(end)
    assert (client.written, pushes.ending) == ([], b"[end]")


@pytest.mark.parametrize("frame_of", [no_frame, Spelling().frame_of])
def test_a_full_connection_has_no_room(frame_of: FrameOf) -> None:
    client = Client()
    pushes = pusher(client, render, frame_of)
    assert pushes.take(Token("a"))
    client.has_room = False
    assert not pushes.take(Token("b"))
    assert not pushes.take(Notice("a", "b"))
    assert len(client.written) == 2


def test_a_client_that_has_gone_is_an_error() -> None:
    with pytest.raises(ConnectionResetError):
        pusher(None, render)
