"""`GET /api/v1/agents/{id}/log`: the last lines of an agent's log, fetched on request.

`…/log/events` continues with new lines as server-sent events. The balancer requests the next lines
only after the previous lines were written, so it stores nothing for slow readers. The stream ends
with its reader, the reader's key, or the agent's link. A page that reconnects continues after its
last line.
"""

import asyncio
from collections.abc import Mapping, Sequence

from aiohttp import web

from ...shared.errors import (
    AgentLost,
    InvalidRequest,
    NotFound,
    RateLimited,
    RequestError,
)
from ...shared.inference import AgentId
from ...shared.reports.log_lines import LogLine
from ..api.common.answering import uncached_json
from ..api.guard import Leases, Needs
from ..api.openapi.document import AnswerDoc, Doc, json_answer, parameter
from ..api.route import Route
from ..api.transport.streaming import begin_stream
from ..fleet.runtime.fleet_runtime import FleetRuntime
from .answer_types import AgentLog
from .parameters import check_names, is_number
from .serializers import dumps

MAX_NUMBER = 2**53

ALIVE_INTERVAL = 5.0
"""Seconds after which a stream without lines sends a sign of life."""

PAUSE = 0.1
"""Seconds between two events. An event has all lines that were logged since the last event."""


def agent_log_routes(runtime: FleetRuntime, leases: Leases) -> list[Route]:
    """Return the routes of an agent's log: past lines, and new lines as they come."""

    async def log(request: web.Request) -> web.Response:
        after = log_position(request.query)
        lines = await runtime.read_log(AgentId(request.match_info["id"]), after)
        return uncached_json(log_json(lines, after))

    async def events(request: web.Request) -> web.StreamResponse:
        return await _follow(runtime, request, leases)

    errors = (InvalidRequest, NotFound, RateLimited, AgentLost)
    after = parameter("after", "query", {"type": "integer", "minimum": 0})
    log_doc = Doc(
        "AgentLog",
        "The last lines of an agent's log, at level info and above.",
        {200: json_answer("The lines after `after`.", AgentLog)},
        parameters=(after,),
        errors=errors,
    )
    events_doc = Doc(
        "AgentLogEvents",
        (
            "The last lines of an agent's log, followed by new lines as the agent logs them. "
            "An event `lines` without lines shows that the stream is alive."
        ),
        {
            200: AnswerDoc(
                "Server-sent events until the agent disconnects.",
                {"text/event-stream": {"x-item-schema": AgentLog}},
            )
        },
        parameters=(
            after,
            parameter("Last-Event-ID", "header"),
            parameter("last_event_id", "query"),
        ),
        errors=errors,
    )
    path = "/api/v1/agents/{id}/log"
    return [
        Route("GET", path, Needs.VIEW, log, log_doc),
        Route("GET", f"{path}/events", Needs.VIEW, events, events_doc, is_endless=True),
    ]


async def _follow(
    runtime: FleetRuntime, request: web.Request, leases: Leases
) -> web.StreamResponse:
    """Answer `request` with lines until its reader leaves, its key ends, or the link is lost."""
    agent = AgentId(request.match_info["id"])
    after = log_position(request.query, request.headers.get("Last-Event-ID", ""))
    lines = await runtime.read_log(agent, after)
    response = await begin_stream(request)

    async def write(lines: Sequence[LogLine], after: int) -> None:
        while True:
            body = log_json(lines, after)
            after = body["after"]
            await response.write(b"id: %d\nevent: lines\ndata: %s\n\n" % (after, dumps(body)))
            await asyncio.sleep(PAUSE)
            try:
                lines = await runtime.read_log(agent, after, wait=ALIVE_INTERVAL)
            except RequestError:
                return  # the reader dials again, and hears why

    await leases.while_here(request, write(lines, after))
    return response


def log_json(lines: Sequence[LogLine], after: int) -> AgentLog:
    """Return the answer with the lines after number `after`."""
    return AgentLog(lines=list(lines), after=max((line.number for line in lines), default=after))


def log_position(query: Mapping[str, str], last_event_id: str = "") -> int:
    """Return the number in `after` or of the last event, or 0.

    Raises `InvalidRequest`, which names the parameter.
    """
    check_names(query, ("after", "last_event_id"))
    text = last_event_id or query.get("last_event_id") or query.get("after", "0")
    if not is_number(text) or int(text) >= MAX_NUMBER:
        raise InvalidRequest(
            f"`after` must be the `after` of an earlier answer, not {text[:100]!r}", field="after"
        )
    return int(text)
