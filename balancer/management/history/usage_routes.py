"""`GET /api/v1/usage`: the usage of each model by each caller, by day."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import NotRequired, get_args

from aiohttp import web
from typing_extensions import TypedDict

from ....shared.errors import InvalidRequest, StoreUnavailable
from ....shared.inference import Count
from ...api.common.answering import uncached_json
from ...api.guard import Needs
from ...api.openapi.document import Doc, json_answer, parameter
from ...api.route import Route
from ...history.history_task import HistoryTask
from ...store.port import StoreAway
from ...store.records import DAY, USAGE_DAYS, UsageColumn, UsageQuery, UsageSum
from ..parameters import check_names

# ---- which days, by what


NAMES = ("since", "until", "by")
COLUMNS: tuple[UsageColumn, ...] = get_args(UsageColumn)
DEFAULT_DAYS = "30d"
MAX_SUMS = 10_000
"""Maximum rows of an answer."""

_DAYS = re.compile(r"(\d{1,4})d", re.ASCII)


def usage_query(query: Mapping[str, str], now: float) -> UsageQuery:
    """Return the query in a URL's parameters. Raises `InvalidRequest`, which names the parameter.

    The query asks for one row more than an answer may have.
    """
    check_names(query, NAMES)
    today = int(now) // DAY
    since = _day("since", query.get("since", DEFAULT_DAYS), today)
    until = _day("until", query.get("until", "1d"), today)
    if until < since:
        raise InvalidRequest("`until` must not be before `since`", field="until")
    return UsageQuery(since=since, until=until, by=_columns(query.get("by")), limit=MAX_SUMS + 1)


def date_of(day: int) -> str:
    """Return a day in the form `2026-01-31`."""
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()


def _day(name: str, text: str, today: int) -> int:
    """Return the day of a date or of a number of days up to today.

    The first stored day is the earliest result.
    """
    if days := _DAYS.fullmatch(text):
        day = today + 1 - max(1, int(days[1]))
    else:
        day = _days_since_1970(name, text)
    return max(day, today - USAGE_DAYS)


def _days_since_1970(name: str, text: str) -> int:
    try:
        found = datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise InvalidRequest(
            f"`{name}` must be a day such as 2026-01-31, or 7d for the last seven days (UTC), "
            f"not {text[:100]!r}",
            field=name,
        ) from None
    return (found - date(1970, 1, 1)).days


def _columns(text: str | None) -> tuple[UsageColumn, ...]:
    names = ["caller"] if text is None else text.split(",")
    chosen = tuple(column for column in COLUMNS if column in names)
    if len(chosen) != len(names):
        raise InvalidRequest(
            f"`by` must be {', '.join(COLUMNS)}, or several with a comma between them, "
            f"not {str(text)[:100]!r}",
            field="by",
        )
    return chosen


# ---- what is answered


class UsageCounts(TypedDict):
    """Counts. `requests` counts ended and refused requests, `errors` requests with an error.

    `cached_tokens` is a part of `prompt_tokens`.
    """

    requests: Count
    errors: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count


class UsageEntry(UsageCounts):
    """Usage by day, caller and model.

    If a column is missing, the entry is a sum over all its values.

    An empty model stands for requests that named no existing model, and for models that are
    counted together.
    """

    day: NotRequired[str]
    caller: NotRequired[str]
    model: NotRequired[str]


class UsageReport(TypedDict):
    """Usage from the day `since` to `until` (UTC, inclusive), summed by the columns in `by`."""

    since: str
    until: str
    by: list[UsageColumn]
    usage: list[UsageEntry]
    total: UsageCounts


def usage_routes(history: HistoryTask) -> list[Route]:
    """Return the route of the usage."""

    async def usage(request: web.Request) -> web.Response:
        query = usage_query(request.query, history.clock())
        try:
            sums = await history.used(query)
        except StoreAway as error:
            raise StoreUnavailable(f"the store is away: {error}") from error
        return uncached_json(usage_body(query, sums))

    doc = Doc(
        "Usage",
        "Requests, errors and tokens by day, caller and model.",
        {200: json_answer("Sums, ordered by their columns.", UsageReport)},
        parameters=(
            *(parameter(name, "query") for name in ("since", "until")),
            parameter("by", "query", {"type": "string", "default": "caller"}),
        ),
        errors=(InvalidRequest, StoreUnavailable),
    )
    return [Route("GET", "/api/v1/usage", Needs.VIEW, usage, doc)]


def usage_body(query: UsageQuery, sums: Sequence[UsageSum]) -> UsageReport:
    """Return the answer. Raises `InvalidRequest` if it would have too many rows."""
    if len(sums) > MAX_SUMS:
        raise InvalidRequest(
            f"the answer has more than {MAX_SUMS} rows; ask for fewer days or for fewer "
            "columns in `by`",
            field="by",
        )
    return UsageReport(
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
