"""`GET /api/v1/about`: what the dashboard has to know of the balancer to suggest commands."""

from collections.abc import Callable
from importlib.metadata import version

from aiohttp import hdrs, web

from .answer_types import About
from .serializers import dumps

AboutPorts = Callable[[], tuple[int | None, str | None]]
"""The inference port, once it is open, and the `--public-url`."""


def about_routes(ports: AboutPorts) -> list[web.RouteDef]:
    """The one route. Asks `ports` for each request, since ports open after the routes are made."""

    async def about(_request: web.Request) -> web.Response:
        port, url = ports()
        body = dumps(About(version=version("arriero"), inference_port=port, public_url=url))
        headers = {hdrs.CACHE_CONTROL: "no-store"}
        return web.Response(body=body, content_type="application/json", headers=headers)

    return [web.get("/api/v1/about", about)]


def unknown_ports() -> tuple[None, None]:
    """Where there is no other port."""
    return None, None
