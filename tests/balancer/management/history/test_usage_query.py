"""Which days, added up by what."""

import pytest

from arriero.balancer.management.history.usage_query import MAX_SUMS, date_of, usage_query
from arriero.balancer.store.records import DAY, USAGE_DAYS, UsageQuery
from arriero.shared.errors import InvalidRequest

TODAY = 20_000
NOW = TODAY * DAY + 3600.0


def test_the_last_month_by_caller() -> None:
    assert usage_query({}, NOW) == UsageQuery(
        since=TODAY - 29, until=TODAY, by=("caller",), limit=MAX_SUMS + 1
    )


def test_days_by_date_or_by_number() -> None:
    dated = usage_query({"since": date_of(TODAY - 3), "until": date_of(TODAY - 1)}, NOW)
    assert (dated.since, dated.until) == (TODAY - 3, TODAY - 1)
    counted = usage_query({"since": "7d", "until": "1d"}, NOW)
    assert (counted.since, counted.until) == (TODAY - 6, TODAY)
    assert usage_query({"since": "0d"}, NOW).since == TODAY
    assert usage_query({"since": "1970-01-01"}, NOW).since == TODAY - USAGE_DAYS
    assert date_of(0) == "1970-01-01"


def test_columns_come_in_one_order() -> None:
    assert usage_query({"by": "model,day"}, NOW).by == ("day", "model")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-02-30"}, "since"),
        ({"since": "10"}, "since"),
        ({"until": ""}, "until"),
        ({"since": "1d", "until": "2d"}, "until"),
        ({"by": "agent"}, "by"),
        ({"by": ""}, "by"),
        ({"by": "day,day"}, "by"),
        ({"step": "1"}, "step"),
    ],
)
def test_what_is_wrong_is_named(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        usage_query(query, NOW)
    assert caught.value.field == field
