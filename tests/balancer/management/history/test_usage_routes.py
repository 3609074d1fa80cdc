"""Usage over REST, as the document describes it."""

import pytest

from arriero.balancer.management.history.usage_query import MAX_SUMS
from arriero.balancer.management.history.usage_routes import usage_body
from arriero.balancer.store.records import UsageQuery, UsageSum
from arriero.shared.errors import InvalidRequest
from tests.balancer.history.builders import ending
from tests.balancer.store.fakes import FakeStore

from .test_history_routes import Port, port

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
    await port.history.restore(store)
    store.goes_away()
    status, body = await port.get("/api/v1/usage")
    assert (status, body["error"]["code"]) == (503, "store_unavailable")


def test_too_many_rows_are_an_error() -> None:
    query = UsageQuery(since=0, until=1, by=("caller",), limit=MAX_SUMS + 1)
    sums = [UsageSum(caller=str(number)) for number in range(MAX_SUMS + 1)]
    assert len(usage_body(query, sums[1:])["usage"]) == MAX_SUMS
    with pytest.raises(InvalidRequest, match="fewer days"):
        usage_body(query, sums)
