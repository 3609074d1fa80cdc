"""The parameters of `GET /api/v1/usage`: which days, added up by what."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import get_args

from ....shared.errors import InvalidRequest
from ...store.records import DAY, USAGE_DAYS, UsageColumn, UsageQuery

NAMES = ("since", "until", "by")
COLUMNS: tuple[UsageColumn, ...] = get_args(UsageColumn)
DEFAULT_DAYS = "30d"
MAX_SUMS = 10_000
"""Most rows of an answer."""

_DAYS = re.compile(r"(\d{1,4})d", re.ASCII)


def usage_query(query: Mapping[str, str], now: float) -> UsageQuery:
    """From a URL's parameters. Raises `InvalidRequest`, which names the parameter.

    It asks for one row more than an answer may have.
    """
    for name in query:
        if name not in NAMES:
            raise InvalidRequest(f"`{name[:100]}` is not one of {', '.join(NAMES)}", field=name)
    today = int(now) // DAY
    since = _day("since", query.get("since", DEFAULT_DAYS), today)
    until = _day("until", query.get("until", "1d"), today)
    if until < since:
        raise InvalidRequest("`until` must not be before `since`", field="until")
    return UsageQuery(since=since, until=until, by=_columns(query.get("by")), limit=MAX_SUMS + 1)


def date_of(day: int) -> str:
    """`2026-01-31`."""
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()


def _day(name: str, text: str, today: int) -> int:
    """A date, or a number of days that end with today; not before the first that is kept."""
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
