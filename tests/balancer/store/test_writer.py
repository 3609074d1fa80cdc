"""The task that writes: nobody waits for it, and it survives every failure."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from arriero.balancer.store import health, write_behind, writer
from arriero.balancer.store.health import LOST
from arriero.balancer.store.records import (
    Conflicted,
    EndedRequest,
    EndingFilter,
    NotPersisted,
    Persist,
    Persisted,
    PersistOutcome,
    SavedState,
    SavedStep,
    StepRange,
    StoreStatus,
    UsageQuery,
    UsageRow,
)
from arriero.balancer.store.writer import StoreWriter
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

from .conftest import OpenStore
from .fakes import FakeStore
from .test_history_backlog import ending, step, usage

pytestmark = pytest.mark.usefixtures("closes_stores")

FIRST = Persist(0, "state")


class Running:
    """A writer that runs, its store, and its saves, whose outcomes are read in their order."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.saves: deque[asyncio.Future[PersistOutcome]] = deque()
        self.writer = StoreWriter(self.store)

    def persist(self, persist: Persist) -> None:
        self.saves.append(self.writer.persist(persist))

    async def outcome(self) -> PersistOutcome:
        async with asyncio.timeout(HANGS):
            return await self.saves.popleft()


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    running = Running()
    task = asyncio.create_task(running.writer.run())
    yield running
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(write_behind, "LONGEST_PAUSE", 0.02)


async def test_a_save_is_confirmed(running: Running) -> None:
    running.persist(FIRST)
    assert not any(each.done() for each in running.saves)
    assert await running.outcome() == Persisted()
    assert await running.store.load_desired_state() == SavedState(1, "state")


async def test_a_conflict_comes_with_what_is_saved(running: Running) -> None:
    await MemoryStore.save_desired_state(running.store, Persist(0, "another's"))
    running.persist(FIRST)
    assert await running.outcome() == Conflicted(SavedState(1, "another's"))


async def test_while_the_store_is_away_writes_are_tried_until_it_is_back(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, health.__name__)
    running.store.goes_away()
    running.persist(FIRST)
    running.writer.append([step(1)], [ending("r")])
    await running.store.calls(4)
    status = running.writer.status()
    assert (status.problem, status.num_pending) == ("connection refused", 3)
    running.store.problem = None
    assert await running.outcome() == Persisted()
    assert await running.writer.flush(HANGS)
    assert (running.store.history.steps, running.store.history.endings) == (
        [step(1)],
        [ending("r")],
    )
    assert not running.writer.status().is_away
    told = [each.getMessage() for each in caplog.records]
    assert told == ["the store is away: connection refused", "the store is back"]


async def test_a_save_is_given_up_in_the_end(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SAVE_TIMEOUT", 0.05)
    running.store.goes_away()
    running.persist(FIRST)
    reason = "the store is away: connection refused"
    assert await running.outcome() == NotPersisted(reason)


async def test_a_store_that_hangs_counts_as_away(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "TRY_TIMEOUT", 0.02)
    running.store.is_open.clear()
    running.persist(FIRST)
    await running.store.calls(2)
    assert running.writer.status().problem == "no answer within 0.02 s"
    running.store.is_open.set()
    assert await running.outcome() == Persisted()


async def test_a_fault_ends_its_own_write_only(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.store.problem = ZeroDivisionError("a fault")
    running.persist(FIRST)
    outcome = await running.outcome()
    assert outcome == NotPersisted("internal error; the balancer's log has the details")
    assert "ZeroDivisionError: a fault" in caplog.text
    running.store.problem = None
    running.persist(FIRST)
    assert await running.outcome() == Persisted()


async def test_saves_go_in_their_order_and_are_told_later(running: Running) -> None:
    saves = [Persist(number, "state") for number in range(3)]
    for each in saves:
        running.persist(each)
    assert not any(each.done() for each in running.saves)
    assert running.writer.status().num_pending == 3
    assert [await running.outcome() for _ in saves] == [Persisted() for each in saves]
    assert running.writer.status().num_pending == 0


async def test_a_save_does_not_wait_for_the_history(running: Running) -> None:
    running.store.history.is_stuck.set()
    running.writer.append([step(1)], [])
    running.persist(FIRST)
    assert await running.outcome() == Persisted()


async def test_a_flush_waits_for_saves_too(running: Running) -> None:
    running.store.goes_away()
    running.persist(FIRST)
    assert not await running.writer.flush(0.05)
    running.store.problem = None
    assert await running.writer.flush(HANGS)
    assert await running.outcome() == Persisted()


async def test_a_flush_waits_no_longer_than_it_may(running: Running) -> None:
    running.store.goes_away()
    running.writer.append([step(1)], [])
    assert not await running.writer.flush(0.05)
    running.store.problem = None
    assert await running.writer.flush(5)
    assert running.store.history.steps == [step(1)]


async def test_a_store_that_does_not_last_is_given_no_history() -> None:
    bare = StoreWriter(MemoryStore())
    bare.append([step(1)], [ending("r")])
    assert bare.status().num_pending == 0


UNWRITABLE = [
    pytest.param([], [replace(ending("bad"), prompt_tokens=2**63)], [], id="a count too large"),
    pytest.param([], [replace(ending("bad"), moves=10**400)], [], id="a count far too large"),
    pytest.param([SavedStep(1, 3, "\ud800")], [], [], id="half a character"),
    pytest.param([], [], [replace(usage(1), completion_tokens=2**63)], id="usage"),
    pytest.param([], [replace(ending("bad"), kind=cast("str", None))], [], id="nothing at all"),
]


@pytest.mark.parametrize(("steps", "endings", "rows"), UNWRITABLE)
async def test_what_cannot_be_written_costs_itself_and_nothing_beside_it(
    opened_sql: OpenStore,
    caplog: pytest.LogCaptureFixture,
    steps: list[SavedStep],
    endings: list[EndedRequest],
    rows: list[UsageRow],
) -> None:
    store = await opened_sql()
    writer = StoreWriter(store)
    good = [usage(1, caller="ana"), usage(1, caller="zoe")]
    writer.append(
        [step(1), step(2), *steps, step(4)],
        [ending("a"), *endings, ending("z")],
        [good[0], *rows, good[1]],
    )
    task = asyncio.create_task(writer.run())
    assert await writer.flush(20)
    assert writer.status() == StoreStatus(num_dropped=1, fault=LOST)
    writer.append([step(5)], [])
    assert await writer.flush(20)
    assert writer.status() == StoreStatus(num_dropped=1), "all is written again"
    task.cancel()
    saved = await (await opened_sql()).history.load_steps(StepRange(1, 0))
    assert [each.at for each in saved] == [1, 2, 4, 5]
    kept, _ = await store.history.find_endings(EndingFilter())
    assert {each.id for each in kept} == {"a", "z"}
    used = await store.history.load_usage(
        UsageQuery(since=1, until=1, by=("caller",), limit=9), "", 2
    )
    assert [each.caller for each in used] == ["ana", "zoe"]
    [line] = caplog.records
    assert line.getMessage().startswith("a record of the history could not be written, and is lost")
    assert line.exc_info is not None
