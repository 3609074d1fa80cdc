"""`GET /api/v1/history`, ended requests, and the health of the store."""

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import hdrs, web
from pydantic_core import to_json

from ...history.history_task import History
from ...store.records import StoreStatus
from . import answer_types
from .history_query import HistoryQuery, ended_filter


def history_routes(history: History, status: Callable[[], StoreStatus]) -> list[web.RouteDef]:
    """The routes that show the past, and `/health`."""

    async def chart(request: web.Request) -> web.Response:
        query = HistoryQuery.of(request.query, history.clock())
        found = await history.chart(query.since, query.step, query.by, query.name)
        body = answer_types.History(
            since=query.since,
            step=found.step,
            by=query.by,
            times=found.times,
            levels=found.levels,
            lines=found.lines,
        )
        return _answer(await asyncio.to_thread(to_json, body))

    async def health(_request: web.Request) -> web.Response:
        return _answer(to_json(_health(status())))

    return [web.get("/api/v1/history", chart), web.get("/health", health)]


def ended_requests(history: History, query: Mapping[str, str]) -> web.Response:
    """The answer to `GET /api/v1/requests?state=ended`. Raises `InvalidRequest`."""
    chosen = list(history.endings.choose(ended_filter(query)))
    body = answer_types.EndedRequests(requests=chosen, total=len(history.endings))
    return _answer(to_json(body))


def _health(status: StoreStatus) -> answer_types.ManagementHealth:
    """200 also while the store is away: the fleet goes on serving."""
    if status.problem is None:
        return {"status": "ok", "store": "ok"}
    return {"status": "ok", "store": "away", "store_problem": status.problem}


def _answer(body: bytes) -> web.Response:
    headers = {hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(body=body, content_type="application/json", headers=headers)
