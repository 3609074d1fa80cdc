"""The contract of what keeps requests that outlive their balancer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func
from sqlalchemy.dialects import postgresql, sqlite

from arriero.balancer.store import retained as retained
from arriero.balancer.store.retained import RetainedStore
from arriero.balancer.store.retained_records import (
    FoundRequest,
    RetainedBounds,
    RetainedOutcome,
    RetainedWrite,
    SavedEvents,
    SavedRequest,
)
from arriero.balancer.store.tables import KEPT_EVENTS
from tests.balancer.store.conftest import OpenStore

A, B = "run-a", "run-b"
LEASE, OVER = 60.0, -1.0
FIRST = SavedRequest(
    id="r1", owner="ana@1", name="/v1#k#0", digest="d1", document='{"x": "\\u0000"}', created_at=1.0
)
SECOND = replace(FIRST, id="r2", name="/v1#k#1", created_at=2.0)
WELL = RetainedOutcome()


@pytest.fixture
async def store(opened_sql: OpenStore) -> AsyncIterator[RetainedStore]:
    return (await opened_sql()).retained


def grown(start: int, document: str, *, id: str = "r1", **more: object) -> RetainedWrite:
    events = SavedEvents(id=id, start=start, document=document)
    return RetainedWrite(grown=(replace(events, **more),))  # type: ignore[arg-type]


async def found(store: RetainedStore, id: str = "r1") -> FoundRequest:
    [request] = await store.find_retained("ana@1", id=id)
    return request


async def test_what_was_written_is_there_for_whoever_opens_it_next(opened_sql: OpenStore) -> None:
    store = (await opened_sql()).retained
    assert await store.write_retained(A, RetainedWrite(begun=(FIRST,)), LEASE) == WELL
    assert await store.write_retained(A, grown(0, "[1]", model="m", fingerprint="f"), LEASE) == WELL
    assert await store.write_retained(A, grown(1, "[2]", has_ended=True), LEASE) == WELL
    assert await found((await opened_sql()).retained) == FoundRequest(
        request=FIRST, events=("[1]", "[2]"), has_ended=True, model="m", fingerprint="f"
    )


async def test_the_same_write_again_is_well_and_may_be_longer(store: RetainedStore) -> None:
    write = replace(grown(0, "[1]"), begun=(FIRST,))
    for _ in range(2):
        assert await store.write_retained(A, write, LEASE) == WELL
    assert await store.write_retained(A, grown(0, "[1,2]"), LEASE) == WELL
    assert (await found(store)).events == ("[1,2]",)


async def test_a_name_is_taken_once_by_each_owner(store: RetainedStore) -> None:
    again = replace(FIRST, id="r9")
    others = replace(again, id="r8", owner="bob@1")
    await store.write_retained(A, RetainedWrite(begun=(FIRST,)), LEASE)
    write = replace(grown(0, "[9]", id="r9"), begun=(again, others))
    assert await store.write_retained(B, write, LEASE) == RetainedOutcome(unsaved=frozenset({"r9"}))
    assert (await found(store)).events == ()
    assert await store.find_retained("bob@1", id="r1") == []
    assert await store.find_retained("ana@1", id="r8") == []


async def test_names_are_found_by_how_they_begin(store: RetainedStore) -> None:
    percent = replace(FIRST, id="r3", name="/v1#%#0")
    await store.write_retained(A, RetainedWrite(begun=(SECOND, FIRST, percent)), LEASE)
    names = [[e.request.id for e in await store.find_retained("ana@1", prefix=p)] for p in PREFIXES]
    assert names == [["r1", "r2"], ["r3"], []]


PREFIXES = ("/v1#k#", "/v1#%#", "/v1#_#")


async def test_a_lease_keeps_others_away_until_it_is_over(store: RetainedStore) -> None:
    await store.write_retained(A, RetainedWrite(begun=(FIRST,)), LEASE)
    assert await store.claim_retained(B, LEASE, 10) == []
    assert await store.claim_retained(A, OVER, 10) == [], "its own are renewed, not taken"
    assert [each.request for each in await store.claim_retained(B, LEASE, 10)] == [FIRST]
    assert await store.claim_retained(B, LEASE, 10) == []


async def test_who_lost_its_lease_writes_no_more(store: RetainedStore) -> None:
    await store.write_retained(A, replace(grown(0, "[1]"), begun=(FIRST,)), OVER)
    await store.claim_retained(B, LEASE, 10)
    late = grown(1, "[late]", has_ended=True)
    assert await store.write_retained(A, late, LEASE) == RetainedOutcome(lost=frozenset({"r1"}))
    assert not (await found(store)).has_ended and (await found(store)).events == ("[1]",)
    assert await store.write_retained(B, grown(1, "[2]", has_ended=True), LEASE) == WELL
    assert (await found(store)).events == ("[1]", "[2]")


async def test_what_is_released_or_has_ended(store: RetainedStore) -> None:
    ended = replace(grown(0, "[2]", id="r2", has_ended=True), begun=(FIRST, SECOND))
    await store.write_retained(A, ended, LEASE)
    await store.write_retained(A, RetainedWrite(released=("r1", "r2")), LEASE)
    assert [each.request for each in await store.claim_retained(B, LEASE, 10)] == [FIRST]


async def test_what_is_cancelled_is_told_to_whoever_runs_it(store: RetainedStore) -> None:
    ended = replace(grown(0, "[2]", id="r2", has_ended=True), begun=(FIRST, SECOND))
    await store.write_retained(A, ended, OVER)
    assert (
        await store.write_retained(B, RetainedWrite(cancelled=("r1", "r2", "gone")), LEASE) == WELL
    )
    assert (await store.cancelled_retained(A), await store.cancelled_retained(B)) == (["r1"], [])
    [taken] = await store.claim_retained(B, LEASE, 10)
    assert taken.is_cancelled
    assert (await store.cancelled_retained(A), await store.cancelled_retained(B)) == ([], ["r1"])


async def test_some_are_left_to_others(store: RetainedStore) -> None:
    await store.write_retained(A, RetainedWrite(begun=(SECOND, FIRST)), OVER)
    claimed = await store.claim_retained(B, LEASE, 1, but={"r1": None})
    assert [each.request.id for each in claimed] == ["r2"]


async def test_the_oldest_are_taken_first_and_not_all_at_once(store: RetainedStore) -> None:
    await store.write_retained(A, RetainedWrite(begun=(SECOND, FIRST)), OVER)
    assert [each.request.id for each in await store.claim_retained(B, LEASE, 1)] == ["r1"]
    assert [each.request.id for each in await store.claim_retained(B, LEASE, 1)] == ["r2"]


async def test_of_balancers_that_ask_at_once_one_gets_each(opened_sql: OpenStore) -> None:
    stores = [(await opened_sql()).retained for _ in range(3)]
    begun = tuple(replace(FIRST, id=f"r{n}", name=str(n)) for n in range(30))
    await stores[0].write_retained(A, RetainedWrite(begun=begun), OVER)
    claims = await asyncio.gather(
        *(each.claim_retained(f"run-{n}", LEASE, 20) for n, each in enumerate(stores))
    )
    taken = [each.request.id for claim in claims for each in claim]
    left = await stores[0].claim_retained("run-9", LEASE, 30)
    taken += [each.request.id for each in left]
    assert sorted(taken) == sorted(each.id for each in begun)


async def test_what_is_forgotten_is_gone_with_its_events(store: RetainedStore) -> None:
    await store.write_retained(A, replace(grown(0, "[1]"), begun=(FIRST,)), LEASE)
    await store.write_retained(A, RetainedWrite(forgotten=("r1",)), LEASE)
    assert await store.find_retained("ana@1", id="r1") == []
    assert await store.write_retained(A, grown(1, "[2]"), LEASE) == RetainedOutcome(
        lost=frozenset({"r1"})
    )
    assert await store.write_retained(A, RetainedWrite(begun=(FIRST,)), LEASE) == WELL
    assert (await found(store)).events == ()


BOUNDS = RetainedBounds(num=10, num_bytes=10_000, age=1000.0)


@pytest.mark.parametrize(
    "bounds", [replace(BOUNDS, num=1), replace(BOUNDS, num_bytes=30), replace(BOUNDS, age=-9.0)]
)
async def test_what_is_beyond_the_bounds_goes_but_for_what_runs(
    store: RetainedStore, bounds: RetainedBounds
) -> None:
    running = replace(FIRST, id="r0", name="n")
    await store.write_retained(A, RetainedWrite(begun=(running,)), LEASE)
    for request in (FIRST, SECOND):
        write = replace(grown(0, "[1]", id=request.id, has_ended=True), begun=(request,))
        await store.write_retained(A, write, LEASE)
    await found(store, "r1")
    assert await store.trim_retained(BOUNDS) == 0
    num = await store.trim_retained(bounds)
    left = [e.request.id for e in await store.find_retained("ana@1", prefix="")]
    assert (num, left) == ((1, ["r0", "r1"]) if bounds.age > 0 else (2, ["r0"]))


@pytest.mark.parametrize("bounds", [replace(BOUNDS, num=3), replace(BOUNDS, num_bytes=70)])
async def test_whoever_retains_most_loses_the_oldest(
    store: RetainedStore, bounds: RetainedBounds
) -> None:
    """One owner's many, all newer, cost another owner nothing."""
    for request in (replace(FIRST, id="bens", owner="ben@1"), *MANY):
        write = replace(grown(0, "[12345]", id=request.id, has_ended=True), begun=(request,))
        await store.write_retained(A, write, LEASE)
        await asyncio.sleep(0.003)  # the database's clock goes on
    assert await store.trim_retained(bounds) == 2
    assert len(await store.find_retained("ben@1", prefix="")) == 1
    left = [e.request.id for e in await store.find_retained("ana@1", prefix="")]
    assert left == ["r2", "r3"]


MANY = [replace(FIRST, id=f"r{n}", name=str(n), created_at=float(n)) for n in range(4)]


def test_who_takes_requests_does_not_wait_for_who_takes_others() -> None:
    claimable = retained._claimable("run", func.clock_timestamp(), 5)
    text = str(claimable.compile(dialect=postgresql.dialect()))
    assert "FOR UPDATE SKIP LOCKED" in text and "clock_timestamp()" in text


def test_who_writes_keeps_others_from_taking_it_meanwhile() -> None:
    text = str(retained._owned("run", ["r"]).compile(dialect=postgresql.dialect()))
    assert text.endswith("FOR UPDATE")


@pytest.mark.parametrize("dialect", [sqlite, postgresql])
def test_events_from_the_same_number_on_are_replaced(dialect: Any) -> None:
    statement = retained._replacing(dialect.insert(KEPT_EVENTS))
    text = str(statement.compile(dialect=dialect.dialect()))
    assert "ON CONFLICT (id, start) DO UPDATE SET document = excluded.document" in text


def test_what_runs_is_never_beyond_the_bounds() -> None:
    bounds = RetainedBounds(num=1, num_bytes=2, age=3.0)
    text = str(retained._excess(bounds, func.now()))
    assert "WHERE anon_1.is_idle AND (" in text
