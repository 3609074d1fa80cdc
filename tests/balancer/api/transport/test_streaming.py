from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.transport.http import middlewares
from arriero.balancer.api.transport.streaming import prefers_event_stream, send_stream
from arriero.shared.errors import QueueTimeout


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

    app = web.Application(middlewares=middlewares())
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
