"""The task that writes: nobody waits for it, and it survives every failure."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from arriero.balancer.store import pending, writer
from arriero.balancer.store.records import (
    Conflicted,
    NotPersisted,
    Persist,
    Persisted,
    PersistOutcome,
    SavedState,
)
from arriero.balancer.store.writer import StoreWriter

from .fakes import FakeStore
from .test_pending import ending, step

FIRST = Persist(0, "state")


class Running:
    """A writer that runs, its store, and the outcomes that it told."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.outcomes: asyncio.Queue[PersistOutcome] = asyncio.Queue()
        self.writer = StoreWriter(self.store, history=self.store)

    async def outcome(self) -> PersistOutcome:
        async with asyncio.timeout(5):
            return await self.outcomes.get()


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    running = Running()
    task = asyncio.create_task(running.writer.run(running.outcomes.put_nowait))
    yield running
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(pending, "LONGEST_PAUSE", 0.02)


async def test_a_save_is_confirmed(running: Running) -> None:
    running.writer.persist(FIRST)
    assert running.outcomes.empty()
    assert await running.outcome() == Persisted(FIRST)
    assert await running.store.load_desired_state() == SavedState(1, "state")


async def test_a_conflict_comes_with_what_is_saved(running: Running) -> None:
    await running.store.memory.save_desired_state(Persist(0, "another's"))
    running.writer.persist(FIRST)
    assert await running.outcome() == Conflicted(FIRST, SavedState(1, "another's"))


async def test_while_the_store_is_away_writes_are_tried_until_it_is_back(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, writer.__name__)
    running.store.goes_away()
    running.writer.persist(FIRST)
    running.writer.append([step(1)], [ending("r")])
    await running.store.calls(4)
    status = running.writer.status()
    assert (status.problem, status.num_pending) == ("connection refused", 3)
    running.store.problem = None
    assert await running.outcome() == Persisted(FIRST)
    assert await running.writer.flush(5)
    assert (running.store.steps, running.store.endings) == ([step(1)], [ending("r")])
    assert not running.writer.status().is_away
    told = [each.getMessage() for each in caplog.records]
    assert told == ["the store is away: connection refused", "the store is back"]


async def test_a_save_is_given_up_in_the_end(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "SAVE_TIMEOUT", 0.05)
    running.store.goes_away()
    running.writer.persist(FIRST)
    reason = "the store is away: connection refused"
    assert await running.outcome() == NotPersisted(FIRST, reason)


async def test_a_store_that_hangs_counts_as_away(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TRY_TIMEOUT", 0.02)
    running.store.is_open.clear()
    running.writer.persist(FIRST)
    await running.store.calls(2)
    assert running.writer.status().problem == "no answer within 0.02 s"
    running.store.is_open.set()
    assert await running.outcome() == Persisted(FIRST)


async def test_a_fault_ends_its_own_write_only(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.store.problem = ZeroDivisionError("a fault")
    running.writer.persist(FIRST)
    outcome = await running.outcome()
    assert outcome == NotPersisted(FIRST, "internal error; the balancer's log has it")
    assert "ZeroDivisionError: a fault" in caplog.text
    running.store.problem = None
    running.writer.persist(FIRST)
    assert await running.outcome() == Persisted(FIRST)


async def test_too_many_saves_are_told_later_not_at_once(running: Running) -> None:
    running.store.is_open.clear()
    for number in range(pending.MAX_SAVES + 1):
        running.writer.persist(Persist(number, ""))
    assert running.outcomes.empty()
    outcome = await running.outcome()
    assert isinstance(outcome, NotPersisted)
    assert outcome.persist.expected == pending.MAX_SAVES


async def test_a_flush_waits_no_longer_than_it_may(running: Running) -> None:
    running.store.goes_away()
    running.writer.append([step(1)], [])
    assert not await running.writer.flush(0.05)
    running.store.problem = None
    assert await running.writer.flush(5)
    assert running.store.steps == [step(1)]


async def test_a_store_without_history_is_given_none() -> None:
    bare = StoreWriter(FakeStore())
    bare.append([step(1)], [ending("r")])
    assert bare.status().num_pending == 0
