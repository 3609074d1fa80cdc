"""A server that answers what a test tells it to."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeServer:
    """Answers every request with the next of its `answers`; `seen` are the requests."""

    def __init__(self) -> None:
        self.answers: list[Handler] = []
        self.seen: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path_qs, await request.read()))
        self.headers.append(dict(request.headers))
        return await self.answers.pop(0)(request)

    def will(self, *handlers: Handler) -> None:
        self.answers += handlers


def says(body: object, *, status: int = 200, **headers: str) -> Handler:
    """Answers with JSON; a header `Retry_After` is `Retry-After`."""

    async def handle(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return handle


def writes(*parts: bytes, breaks: bool = False) -> Handler:
    """Streams `parts`, and closes the connection in the middle of the answer if it `breaks`."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"X-Request-Id": "r1"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if breaks:
            assert request.transport is not None
            request.transport.close()
        return response

    return handle


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeServer]:
    """A fake server that listens on loopback."""
    fake = FakeServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    server = TestServer(app)
    await server.start_server(**({"ssl": tls} if tls else {}))
    fake.url = str(server.make_url("")).rstrip("/")
    try:
        yield fake
    finally:
        await server.close()
