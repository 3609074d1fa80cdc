"""Which requests a `cancel` selects, and how many a socket may have."""

import asyncio

import pytest

from arriero.balancer.api.native.live_calls import MAX_LIVE_REQUESTS, LiveCall, LiveCalls
from arriero.shared.errors import InvalidRequest, RateLimited
from arriero.shared.inference import RequestId


class Opened:
    """A request that remembers being closed."""

    def __init__(self, id: str | None) -> None:
        self.id = None if id is None else RequestId(id)
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


async def never() -> None:
    await asyncio.Event().wait()


def live(*ids: str | None, items: tuple[str, ...] = ()) -> LiveCall:
    return LiveCall([Opened(id) for id in ids], asyncio.create_task(never()), items)


async def test_a_call_is_here_until_it_is_removed() -> None:
    calls, call = LiveCalls(), live("r1")
    calls.add("a", call)
    assert ("a" in calls, "b" in calls, calls.tasks) == (True, False, [call.task])
    calls.remove("a")
    assert ("a" in calls, calls.tasks) == (False, [])


async def test_a_cancel_selects_one_call_one_item_or_all() -> None:
    calls = LiveCalls()
    calls.add(1, live("r1"))
    calls.add("many", live("r2", None, "r4", items=("0", "refused", "last")))
    assert calls.named({"id": 1}) == ["r1"]
    assert calls.named({"id": "many"}) == ["r2", "r4"], "one was refused, so it has no request"
    assert calls.named({"id": "many", "item": "last"}) == ["r4"]
    assert calls.named({"id": 1, "item": "0"}) == []
    assert calls.named({"id": "nobody"}) == []
    assert calls.named({"all": True}) == ["r1", "r2", "r4"]


@pytest.mark.parametrize("params", [None, {}, {"all": False}, {"id": []}, {"id": 1, "all": True}])
async def test_a_cancel_of_anything_else_is_refused(params: object) -> None:
    with pytest.raises(InvalidRequest, match="give either"):
        LiveCalls().named(params)


async def test_each_request_of_a_batch_counts() -> None:
    calls = LiveCalls()
    calls.add("many", live("r1", "r2"))
    calls.check_room(MAX_LIVE_REQUESTS - 2)
    with pytest.raises(RateLimited, match=r"1024 requests at once, 2 are running"):
        calls.check_room(MAX_LIVE_REQUESTS - 1)
    calls.remove("many")
    calls.check_room(MAX_LIVE_REQUESTS)


async def test_closing_closes_requests_and_ends_tasks() -> None:
    calls, call = LiveCalls(), live("r1", "r2")
    calls.add("a", call)
    calls.close()
    assert all(isinstance(each, Opened) and each.is_closed for each in call.streams)
    with pytest.raises(asyncio.CancelledError):
        await call.task
