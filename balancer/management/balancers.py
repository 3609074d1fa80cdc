"""`GET /api/v1/balancers`: this balancer, and the balancers that share its store."""

import time
from collections.abc import Callable
from importlib.metadata import version

from aiohttp import web

from ..api.common.answering import uncached_json
from ..api.guard import Needs
from ..api.openapi.document import Doc, json_answer
from ..api.route import Route
from .answer_types import Balancer, Balancers

ListBalancers = Callable[[], list[Balancer]]
"""Returns the live balancers by name."""


def alone(
    name: str = "", url: str | None = None, clock: Callable[[], float] = time.time
) -> ListBalancers:
    """Return a function that lists only this balancer, which leads from now on."""
    since = clock()

    def listed() -> list[Balancer]:
        balancer = Balancer(
            name=name,
            url=url,
            version=version("arriero"),
            leads=True,
            is_here=True,
            since=since,
            last_heartbeat=clock(),
        )
        return [balancer]

    return listed


def balancer_routes(list_balancers: ListBalancers) -> list[Route]:
    """Return the route of the list of balancers."""

    async def balancers(_request: web.Request) -> web.Response:
        return uncached_json(Balancers(balancers=list_balancers()))

    doc = Doc(
        "Balancers",
        "This balancer, and the balancers that share its store.",
        {200: json_answer("Those that live.", Balancers)},
    )
    return [Route("GET", "/api/v1/balancers", Needs.VIEW, balancers, doc)]
