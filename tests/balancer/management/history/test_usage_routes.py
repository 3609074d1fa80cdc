"""Usage over REST, as the document describes it."""

import pytest

from arriero.balancer.management.history.usage_routes import (
    MAX_SUMS,
    date_of,
    usage_body,
    usage_query,
)
from arriero.balancer.store.records import DAY, USAGE_DAYS, UsageQuery, UsageSum
from arriero.shared.errors import InvalidRequest
from tests.balancer.history.builders import ending
from tests.balancer.store.fakes import FakeStore

from .test_history_routes import Port, port

pytestmark = pytest.mark.usefixtures("closes_stores")

__all__ = ["port"]

ONE = {
    "requests": 1,
    "errors": 0,
    "prompt_tokens": 10,
    "cached_tokens": 4,
    "completion_tokens": 7,
}


async def test_what_was_used(port: Port) -> None:
    port.history.recorder.ended(ending())
    status, body = await port.get("/api/v1/usage")
    assert status == 200
    assert body == {
        "since": "2023-10-16",
        "until": "2023-11-14",
        "by": ["caller"],
        "usage": [{"caller": "anonymous", **ONE}],
        "total": ONE,
    }
    _, body = await port.get("/api/v1/usage?by=model,day&since=1d")
    assert body["usage"] == [{"day": "2023-11-14", "model": "tiny", **ONE}]


async def test_nothing_was_used(port: Port) -> None:
    _, body = await port.get("/api/v1/usage")
    assert (body["usage"], body["total"]["requests"]) == ([], 0)


async def test_bad_parameters_are_named(port: Port) -> None:
    status, body = await port.get("/api/v1/usage?by=colour")
    assert (status, body["error"]["field"]) == (400, "by")


async def test_while_the_store_is_away(port: Port) -> None:
    store = FakeStore()
    await port.history.restore(store.history)
    store.goes_away()
    status, body = await port.get("/api/v1/usage")
    assert (status, body["error"]["code"]) == (503, "store_unavailable")


def test_too_many_rows_are_an_error() -> None:
    query = UsageQuery(since=0, until=1, by=("caller",), limit=MAX_SUMS + 1)
    sums = [UsageSum(caller=str(number)) for number in range(MAX_SUMS + 1)]
    assert len(usage_body(query, sums[1:])["usage"]) == MAX_SUMS
    with pytest.raises(InvalidRequest, match="fewer days"):
        usage_body(query, sums)


# ---- which days, by what


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
