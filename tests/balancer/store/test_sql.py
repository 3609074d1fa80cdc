"""The history in both databases, and what a server's end does; `test_port` has the rest."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from arriero.balancer.store.news.records import Changed, News
from arriero.balancer.store.news.sql import tell
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import (
    MAX_ENDINGS,
    USAGE_DAYS,
    EndedRequest,
    EndingFilter,
    Persist,
    Persisted,
    PersistOutcome,
    SavedState,
    SavedStep,
    StepRange,
    UsageColumn,
    UsageQuery,
    UsageRow,
    UsageSum,
)
from arriero.balancer.store.sql import SqlStore
from arriero.balancer.store.url import parse_store_url
from arriero.balancer.store.writer import StoreWriter

from .conftest import OpenSql
from .postgres import PostgresServer
from .test_pending import ending, step

FULL = EndedRequest(
    id="r1",
    ended_at=1_700_000_000.25,
    kind="generate",
    code="engine_failed",
    caller="anonymous",
    model="tiny",
    agent="ana",
    error="it broke",
    prompt_tokens=2**40,
    cached_tokens=2,
    completion_tokens=3,
    reasoning_tokens=1,
    queue_ms=0.125,
    first_token_ms=1.5,
    total_ms=20.25,
    prefill_tokens_per_second=1000.5,
    decode_tokens_per_second=33.25,
    moves=2,
    balancer="east",
)


@pytest.fixture
async def store(opened_sql: OpenSql) -> SqlStore:
    return await opened_sql()


async def endings_in(store: SqlStore, **wanted: Any) -> list[EndedRequest]:
    return (await store.find_endings(EndingFilter(**wanted)))[0]


async def test_the_history_comes_back_as_it_was(opened_sql: OpenSql) -> None:
    steps = [SavedStep(1, 100, "{}"), SavedStep(1, 101, '{"a": 1}'), SavedStep(60, 60, "[]")]
    await (await opened_sql()).append_history(steps, [FULL, ending("r2")])
    store = await opened_sql()
    assert await store.load_steps(StepRange(1, 0)) == steps[:2]
    assert await store.load_steps(StepRange(1, 101)) == steps[1:2]
    assert await store.load_steps(StepRange(60, 0)) == steps[2:]
    assert await store.find_endings(EndingFilter()) == ([FULL, ending("r2")], 2)
    assert await store.find_endings(EndingFilter(limit=1)) == ([FULL], 2), "the latest"


async def test_the_same_history_again_changes_nothing(store: SqlStore) -> None:
    """As after a connection that broke before the confirmation came."""
    await store.append_history([step(1)], [FULL])
    await store.append_history([step(1), step(2)], [FULL, ending("r2")])
    assert await store.load_steps(StepRange(1, 0)) == [step(1), step(2)]
    assert len(await endings_in(store)) == 2


async def test_old_history_is_deleted(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.append_history([step(at) for at in (0, 1, 3600)], [])
    assert await store.load_steps(StepRange(1, 0)) == [step(1), step(3600)]
    await store.append_history([SavedStep(60, 90_000, "{}")], [])
    assert await store.load_steps(StepRange(1, 0)) == [step(1), step(3600)], (
        "minutes do not age seconds"
    )


async def test_only_the_latest_endings_are_kept(store: SqlStore) -> None:
    endings = [replace(ending(f"r{at}"), ended_at=at) for at in range(MAX_ENDINGS + 3)]
    await store.append_history([], endings)
    kept = await endings_in(store, limit=2 * MAX_ENDINGS)
    assert kept == endings[:2:-1]


async def test_text_that_a_database_cannot_hold_is_mended(store: SqlStore) -> None:
    await store.append_history([], [replace(FULL, error="a\0b\ud800c")])
    [kept] = await endings_in(store)
    assert kept.error == "a\N{REPLACEMENT CHARACTER}b?c"


async def test_a_batch_is_written_whole_or_not_at_all(store: SqlStore) -> None:
    broken = replace(FULL, code=None)  # type: ignore[arg-type]
    with pytest.raises(IntegrityError):
        await store.append_history([step(1)], [ending("r"), broken])
    assert await store.load_steps(StepRange(1, 0)) == []
    assert await endings_in(store) == []


async def test_usage_is_added_up_over_runs(opened_sql: OpenSql) -> None:
    rows = [usage(1, "alice"), usage(2, "alice"), usage(2, "bob", run="other")]
    await (await opened_sql()).append_history([], [], rows)
    store = await opened_sql()
    alice, bob = await store.load_usage(by("caller"), "", 0)
    assert alice == UsageSum(
        caller="alice",
        requests=2,
        errors=4,
        prompt_tokens=2**41,
        cached_tokens=6,
        completion_tokens=8,
    )
    assert (bob.caller, bob.requests) == ("bob", 1)
    sums = await store.load_usage(by("day", "model"), "", 0)
    assert [(each.day, each.model, each.requests) for each in sums] == [
        (1, "tiny", 1),
        (2, "tiny", 2),
    ]
    assert [each.day for each in await store.load_usage(by("day", limit=1), "", 0)] == [1]
    assert await store.load_usage(replace(by("day"), since=3), "", 0) == []


async def test_usage_that_a_run_holds_itself_is_left_out(store: SqlStore) -> None:
    rows = [usage(1, "alice"), usage(2, "alice"), usage(2, "alice", run="other")]
    await store.append_history([], [], rows)
    [found] = await store.load_usage(by("caller"), "run", 2)
    assert found.requests == 2, "the other's, and its own of the day before"


async def test_usage_written_again_takes_the_place_of_the_former(store: SqlStore) -> None:
    """As after a connection that broke before the confirmation came."""
    for requests in (1, 1, 5):
        await store.append_history([], [], [replace(usage(1, "alice"), requests=requests)])
    [found] = await store.load_usage(by("caller"), "", 0)
    assert found.requests == 5


async def test_old_usage_is_deleted(store: SqlStore) -> None:
    await store.append_history([], [], [usage(1, "alice"), usage(2, "alice")])
    await store.append_history([], [], [usage(USAGE_DAYS + 1, "alice")])
    wanted = replace(by("day"), until=USAGE_DAYS + 1)
    found = await store.load_usage(wanted, "", 0)
    assert [each.day for each in found] == [2, USAGE_DAYS + 1]


def usage(day: int, caller: str, run: str = "run") -> UsageRow:
    return UsageRow(
        run=run,
        day=day,
        caller=caller,
        model="tiny",
        requests=1,
        errors=2,
        prompt_tokens=2**40,
        cached_tokens=3,
        completion_tokens=4,
    )


def by(*columns: UsageColumn, limit: int = 100) -> UsageQuery:
    return UsageQuery(since=0, until=10, by=columns, limit=limit)


async def test_a_server_that_ends_and_comes_back(postgres: PostgresServer) -> None:
    """Writes wait meanwhile, and are there in the end."""
    store = SqlStore(parse_store_url(postgres.database()))
    await store.open()
    outcomes: asyncio.Queue[PersistOutcome] = asyncio.Queue()
    writer = StoreWriter(store, history=store)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(writer.run(outcomes.put_nowait))
        first, second = Persist(0, "first"), Persist(1, "second")
        writer.persist(first)
        assert await outcomes.get() == Persisted(first)
        await asyncio.to_thread(postgres.stop)
        with pytest.raises(StoreAway):
            await store.load_desired_state()
        writer.append([step(1)], [ending("r")])
        writer.persist(second)
        assert not await writer.flush(0.3)
        assert writer.status().is_away
        await asyncio.to_thread(postgres.start)
        assert await outcomes.get() == Persisted(second)
        assert await writer.flush(20)
        running.cancel()
    assert await store.load_desired_state() == SavedState(2, "second")
    assert await store.load_steps(StepRange(1, 0)) == [step(1)]
    await store.close()


async def test_who_is_cancelled_in_a_transaction_is_cancelled(tmp_path: Path) -> None:
    store = SqlStore(parse_store_url(f"sqlite:///{tmp_path}/state.db"))
    told: list[News] = []
    store.on_news = told.extend
    await store.open()
    is_inside = asyncio.Event()

    async def write() -> None:
        async with store.transaction() as connection:
            await tell(connection, Changed("keys"))
            is_inside.set()
            await connection.execute(text("SELECT 1"))
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await is_inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with store.transaction() as connection:
        await tell(connection, Changed("cordons"))
    await store.close()
    assert told == [Changed("cordons")]
