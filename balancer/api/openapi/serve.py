"""Serves an OpenAPI document, which is built when it is first asked for.

Building takes longer than the rest of a balancer's start, and most balancers are never asked.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web

PATH = "/openapi.json"


def openapi_routes(build: Callable[[], bytes]) -> list[web.RouteDef]:
    """`GET /openapi.json`, over a port whose document `build` returns. A thread calls it, once."""
    return [web.get(PATH, _Document(build).serve)]


class _Document:
    def __init__(self, build: Callable[[], bytes]) -> None:
        self._build = build
        self._built: asyncio.Future[bytes] | None = None

    async def serve(self, _request: web.Request) -> web.Response:
        if self._built is None:
            self._built = asyncio.get_running_loop().run_in_executor(None, self._build)
        # Shielded: others may wait for it when this client disconnects.
        document = await asyncio.shield(self._built)
        return web.Response(body=document, content_type="application/json")
