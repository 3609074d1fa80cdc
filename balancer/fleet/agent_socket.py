"""The agents' WebSocket, `GET /api/v1/agent-socket`."""

from aiohttp import web

from .switchboard import Switchboard


def routes(switchboard: Switchboard) -> list[web.RouteDef]:
    """The one route, to be mounted on the management port."""
    raise NotImplementedError
