"""`GET /api/v1/usage`: what each caller used of each model, by day."""

from collections.abc import Sequence

from aiohttp import hdrs, web
from pydantic_core import to_json

from ....shared.errors import InvalidRequest, StoreUnavailable
from ...history.history_task import History
from ...store.port import StoreAway
from ...store.records import UsageQuery, UsageSum
from .answer_types import Usage, UsageCounts, UsageEntry
from .usage_query import MAX_SUMS, date_of, usage_query


def usage_routes(history: History) -> list[web.RouteDef]:
    """The route."""

    async def usage(request: web.Request) -> web.Response:
        query = usage_query(request.query, history.clock())
        try:
            sums = await history.used(query)
        except StoreAway as error:
            raise StoreUnavailable(f"the store is away: {error}") from error
        headers = {hdrs.CACHE_CONTROL: "no-store"}
        body = to_json(usage_body(query, sums))
        return web.Response(body=body, content_type="application/json", headers=headers)

    return [web.get("/api/v1/usage", usage)]


def usage_body(query: UsageQuery, sums: Sequence[UsageSum]) -> Usage:
    """The answer. Raises `InvalidRequest` for more rows than one may have."""
    if len(sums) > MAX_SUMS:
        raise InvalidRequest(
            f"that has more than {MAX_SUMS} rows; ask for fewer days, or by fewer columns",
            field="by",
        )
    return Usage(
        since=date_of(query.since),
        until=date_of(query.until),
        by=list(query.by),
        usage=[_entry(each) for each in sums],
        total=_counts(sums),
    )


def _entry(each: UsageSum) -> UsageEntry:
    entry: UsageEntry = {**_counts([each])}  # type: ignore[typeddict-item] # mypy wants all keys
    if each.day is not None:
        entry["day"] = date_of(each.day)
    if each.caller is not None:
        entry["caller"] = each.caller
    if each.model is not None:
        entry["model"] = each.model
    return entry


def _counts(sums: Sequence[UsageSum]) -> UsageCounts:
    return UsageCounts(
        requests=sum(each.requests for each in sums),
        errors=sum(each.errors for each in sums),
        prompt_tokens=sum(each.prompt_tokens for each in sums),
        cached_tokens=sum(each.cached_tokens for each in sums),
        completion_tokens=sum(each.completion_tokens for each in sums),
    )
