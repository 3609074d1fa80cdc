"""The routes of `GET /api/v1/history`, of ended requests, and of the store's health."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal, NotRequired

from aiohttp import web
from typing_extensions import TypedDict

from ....shared.errors import InvalidRequest
from ....shared.inference import Count
from ...api.common.answering import uncached_json
from ...api.guard import Needs
from ...api.openapi.document import Doc, json_answer, parameter
from ...api.route import Route
from ...cluster.cluster_view import ClusterView
from ...history.chart import By, Line
from ...history.history_task import HistoryTask
from ...history.series import Levels
from ...store.records import EndedRequest, StoreStatus
from .history_query import HistoryQuery, cursor_after, ended_filter


class History(TypedDict):
    """Columns over `times`, at which steps of `step` seconds begin, in seconds since 1970.

    Steps without records are left out. `levels` describe the whole fleet. `lines` has one line for
    the fleet, or one line for each agent or model. `missing` names balancers that did not answer
    in time. Their unsaved steps are left out.
    """

    since: int
    step: Count
    by: By | None
    times: list[int]
    levels: list[Levels]
    lines: list[Line]
    missing: NotRequired[list[str]]


class EndedRequests(TypedDict):
    """Ended requests of all balancers over one store, latest first.

    `total` is the number of all stored requests. `next` is the parameter `before` for the next
    page; null on the last page. `missing` names balancers that did not answer in time. Their
    unsaved requests are left out.
    """

    requests: list[EndedRequest]
    total: Count
    next: str | None
    missing: NotRequired[list[str]]


class ManagementHealth(TypedDict):
    """The health of the process. `store` is the health of its store.

    The store has the desired state and the history. `away` means that the store cannot be reached
    or written. `failing` means that the store refuses some writes.
    """

    status: Literal["ok"]
    store: Literal["ok", "away", "failing"]
    store_problem: NotRequired[str]


def history_routes(
    history: HistoryTask, status: Callable[[], StoreStatus], cluster: ClusterView
) -> list[Route]:
    """Return the routes of the history and of `/health`."""

    async def chart(request: web.Request) -> web.Response:
        query = HistoryQuery.of(request.query, history.clock())
        theirs = await cluster.history(query.since)
        found = await history.chart(query.since, query.step, query.by, query.name, theirs.steps)
        body = History(
            since=query.since,
            step=found.step,
            by=query.by,
            times=found.times,
            levels=found.levels,
            lines=found.lines,
        )
        if theirs.missing:
            body["missing"] = [*theirs.missing]
        return await asyncio.to_thread(uncached_json, body)

    async def health(_request: web.Request) -> web.Response:
        return uncached_json(_health(status()))

    chart_doc = Doc(
        "History",
        "Throughput, latencies, endings and the queue: an hour in seconds, a day in minutes.",
        {200: json_answer("Columns over times.", History)},
        parameters=(
            parameter("since", "query"),
            parameter("step", "query"),
            parameter("by", "query", {"type": "string", "enum": ["agent", "model"]}),
            parameter("name", "query"),
        ),
        errors=(InvalidRequest,),
    )
    health_doc = Doc(
        "Health",
        "Whether the process is alive, and whether it reaches its store.",
        {200: json_answer("The process is alive.", ManagementHealth)},
    )
    return [
        Route("GET", "/api/v1/history", Needs.VIEW, chart, chart_doc),
        Route("GET", "/health", Needs.NOTHING, health, health_doc),
    ]


async def ended_requests(
    history: HistoryTask, query: Mapping[str, str], cluster: ClusterView
) -> web.Response:
    """Return the answer to `GET /api/v1/requests?state=ended`. Raises `InvalidRequest`."""
    requested = ended_filter(query)
    theirs = await cluster.ended(requested)
    chosen, total = await history.ended(requested, theirs.requests, theirs.total)
    more = cursor_after(chosen[-1]) if len(chosen) == requested.limit else None
    body = EndedRequests(requests=chosen, total=total, next=more)
    if theirs.missing:
        body["missing"] = [*theirs.missing]
    return uncached_json(body)


def _health(status: StoreStatus) -> ManagementHealth:
    """Return the health.

    The status is 200 even if the store is away, because the fleet still serves.
    """
    if status.problem is not None:
        return {"status": "ok", "store": "away", "store_problem": status.problem}
    if status.fault is not None:
        return {"status": "ok", "store": "failing", "store_problem": status.fault}
    return {"status": "ok", "store": "ok"}
