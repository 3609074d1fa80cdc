"""`GET /api/v1/about`: what the dashboard has to know of the balancer itself.

With the ports it suggests commands; issues it shows.
"""

from collections.abc import Callable
from importlib.metadata import version

from aiohttp import hdrs, web

from ...shared.messages import Issue
from ..api.access.permissions import Needs
from ..api.openapi.document import Doc, json_answer
from ..api.route import Route
from .answer_types import About
from .serializers import dumps

AboutPorts = Callable[[], tuple[int | None, str | None]]
"""The inference port, once it is open, and the `--public-url`."""


Issues = Callable[[], tuple[Issue, ...]]
"""What is wrong with the balancer itself, for operators."""


def no_issues() -> tuple[Issue, ...]:
    """Where nothing looks for any."""
    return ()


def about_routes(ports: AboutPorts, issues: Issues = no_issues) -> list[Route]:
    """The one route. Asks `ports` for each request, since ports open after the routes are made."""

    async def about(_request: web.Request) -> web.Response:
        port, url = ports()
        about = About(
            version=version("arriero"), inference_port=port, public_url=url, issues=issues()
        )
        body = dumps(about)
        headers = {hdrs.CACHE_CONTROL: "no-store"}
        return web.Response(body=body, content_type="application/json", headers=headers)

    doc = Doc(
        "About",
        "The balancer's version, where clients reach it, and what is wrong with it.",
        {200: json_answer("What it is.", About)},
    )
    return [Route("GET", "/api/v1/about", Needs.ANY, about, doc)]


def unknown_ports() -> tuple[None, None]:
    """Where there is no other port."""
    return None, None
