"""A proxy in front of the fleet: records every exchange, and may edit requests on their way.

Clients cannot be told to force a tool call, so tests that need one add it here.
"""

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession, ClientTimeout, hdrs, web

Edit = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Path and body of a request to the body that the fleet gets."""

LARGEST_BODY = 2**26

_OF_ONE_CONNECTION = {
    hdrs.HOST,
    hdrs.CONNECTION,
    hdrs.CONTENT_LENGTH,
    hdrs.TRANSFER_ENCODING,
    hdrs.ACCEPT_ENCODING,
    hdrs.CONTENT_ENCODING,
}


@dataclass
class Exchange:
    """One request as the client sent it, and its answer."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int = 0
    answer: bytes = b""
    answer_headers: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    ended: float = math.inf
    """When the request came and when its answer was over, in seconds of the monotonic clock."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def answered(self) -> Any:
        return json.loads(self.answer)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The data of the answer's server-sent events."""
        lines = self.answer.decode().splitlines()
        data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
        return [json.loads(text) for text in data if text != "[DONE]"]

    def __repr__(self) -> str:
        return f"{self.method} {self.path} {self.status}: {self.answer[:500].decode()}"


class Recorder:
    """Forwards what it gets to `upstream`, as it comes. `upstream` may change meanwhile."""

    def __init__(self, upstream: str) -> None:
        self.exchanges: list[Exchange] = []
        self.edit: Edit | None = None
        self.url = ""
        self.upstream = upstream

    def of(self, path: str) -> list[Exchange]:
        """The exchanges of one path, whatever its query, in order."""
        return [each for each in self.exchanges if each.path.split("?")[0] == path]

    async def start(self) -> None:
        self._session = ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False)
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        exchange = Exchange(request.method, request.path_qs, dict(request.headers), body)
        self.exchanges.append(exchange)
        headers = {k: v for k, v in request.headers.items() if k.title() not in _OF_ONE_CONNECTION}
        if self.edit is not None and body:
            body = json.dumps(self.edit(request.path, json.loads(body))).encode()
        url = self.upstream + request.path_qs
        async with self._session.request(
            request.method, url, data=body or None, headers=headers
        ) as got:
            exchange.status = got.status
            exchange.answer_headers = dict(got.headers)
            answer = web.StreamResponse(status=got.status)
            for name, value in got.headers.items():
                if name.title() not in _OF_ONE_CONNECTION:
                    answer.headers.add(name, value)
            # A client may leave once it has read what it wants: that ends the request upstream.
            with suppress(ConnectionError):
                await answer.prepare(request)
                async for chunk in got.content.iter_any():
                    exchange.answer += chunk
                    await answer.write(chunk)
                await answer.write_eof()
            exchange.ended = time.monotonic()
            return answer
