"""`GET /api/v1/history`, ended requests, and the health of the store."""

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import hdrs, web
from pydantic_core import to_json

from ...history.history_task import History
from ...store.records import StoreStatus
from ..elsewhere.everywhere import Everywhere
from . import answer_types
from .history_query import HistoryQuery, cursor_after, ended_filter


def history_routes(
    history: History, status: Callable[[], StoreStatus], everywhere: Everywhere
) -> list[web.RouteDef]:
    """The routes that show the past, and `/health`."""

    async def chart(request: web.Request) -> web.Response:
        query = HistoryQuery.of(request.query, history.clock())
        told = await everywhere.history(query.since)
        found = await history.chart(query.since, query.step, query.by, query.name, told.steps)
        body = answer_types.History(
            since=query.since,
            step=found.step,
            by=query.by,
            times=found.times,
            levels=found.levels,
            lines=found.lines,
        )
        if told.missing:
            body["missing"] = [*told.missing]
        return _answer(await asyncio.to_thread(to_json, body))

    async def health(_request: web.Request) -> web.Response:
        return _answer(to_json(_health(status())))

    return [web.get("/api/v1/history", chart), web.get("/health", health)]


async def ended_requests(
    history: History, query: Mapping[str, str], everywhere: Everywhere
) -> web.Response:
    """The answer to `GET /api/v1/requests?state=ended`. Raises `InvalidRequest`."""
    wanted = ended_filter(query)
    told = await everywhere.ended(wanted)
    chosen, total = await history.ended(wanted, told.requests, told.total)
    more = cursor_after(chosen[-1]) if len(chosen) == wanted.limit else None
    body = answer_types.EndedRequests(requests=chosen, total=total, next=more)
    if told.missing:
        body["missing"] = [*told.missing]
    return _answer(to_json(body))


def _health(status: StoreStatus) -> answer_types.ManagementHealth:
    """200 also while the store is away: the fleet goes on serving."""
    if status.problem is not None:
        return {"status": "ok", "store": "away", "store_problem": status.problem}
    if status.fault is not None:
        return {"status": "ok", "store": "failing", "store_problem": status.fault}
    return {"status": "ok", "store": "ok"}


def _answer(body: bytes) -> web.Response:
    headers = {hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(body=body, content_type="application/json", headers=headers)
