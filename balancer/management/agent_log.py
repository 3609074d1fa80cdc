"""`GET /api/v1/agents/{id}/log`: the last lines of an agent's log, when somebody looks."""

from collections.abc import Mapping

from aiohttp import hdrs, web

from ...shared.errors import InvalidRequest
from ...shared.inference import AgentId
from ..fleet.runtime.fleet_runtime import FleetRuntime
from .answer_types import AgentLog
from .serializers import dumps

MAX_NUMBER = 2**53


def agent_log_routes(runtime: FleetRuntime) -> list[web.RouteDef]:
    """The one route."""

    async def log(request: web.Request) -> web.Response:
        after = log_position(request.query)
        lines = await runtime.read_log(AgentId(request.match_info["id"]), after)
        newest = max((line.number for line in lines), default=after)
        body = dumps(AgentLog(lines=list(lines), after=newest))
        headers = {hdrs.CACHE_CONTROL: "no-store"}
        return web.Response(body=body, content_type="application/json", headers=headers)

    return [web.get("/api/v1/agents/{id}/log", log)]


def log_position(query: Mapping[str, str]) -> int:
    """`after`, or the beginning. Raises `InvalidRequest`, which names the parameter."""
    for name in query:
        if name != "after":
            raise InvalidRequest(f"`{name[:100]}` is not after", field=name)
    text = query.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) < MAX_NUMBER):
        raise InvalidRequest(
            f"`after` must be the `after` of an answer before, not {text[:100]!r}", field="after"
        )
    return int(text)
