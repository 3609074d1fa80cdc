"""How the store is, by what those see who write to it."""

import asyncio
import logging

import pytest

from arriero.balancer.store.health import LOST, StoreHealth, combined, issues
from arriero.balancer.store.records import StoreStatus
from arriero.shared.messages import Issue


async def test_a_store_that_goes_away_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    health = StoreHealth("the store")
    health.wrote()
    health.went_away("refused")
    health.went_away("gone")
    since = health.status().away_since
    assert since is not None and since <= asyncio.get_running_loop().time()
    assert health.is_away
    assert health.status(3) == StoreStatus(since, "gone", num_pending=3)
    health.answered()
    health.wrote()
    assert health.status() == StoreStatus()
    told = [each.getMessage() for each in caplog.records]
    assert told == ["the store is away: refused", "the store is back"]


async def test_a_failed_write_is_seen_until_one_succeeds() -> None:
    health = StoreHealth("the store")
    health.failed(2)
    health.answered()
    assert health.is_failing
    assert health.status() == StoreStatus(num_dropped=2, fault=LOST)
    health.wrote()
    assert health.status() == StoreStatus(num_dropped=2)


def test_the_store_is_as_bad_as_the_worst_find_it() -> None:
    well, failing = StoreStatus(num_pending=1), StoreStatus(num_dropped=2, fault=LOST)
    assert combined([]) == StoreStatus()
    assert combined([well, failing]) == StoreStatus(num_pending=1, num_dropped=2, fault=LOST)
    late, early = StoreStatus(9.0, "gone"), StoreStatus(0.0, "refused")
    assert combined([well, late, early]) == StoreStatus(0.0, "refused", num_pending=1)


def test_operators_are_given_an_issue() -> None:
    assert issues(StoreStatus()) == ()
    [away] = issues(StoreStatus(1.0, "refused", fault=LOST))
    assert (away.code, away.message) == ("store_away", "the store is away: refused")
    assert issues(StoreStatus(fault=LOST)) == (
        Issue(
            code="store_failing",
            message="the store does not take all that is written to it",
            hint=LOST,
        ),
    )
