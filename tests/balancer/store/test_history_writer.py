"""The history that waits for the store, and the task that writes it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from arriero.balancer.store import health, history_writer, write_behind
from arriero.balancer.store.health import LOST
from arriero.balancer.store.history_writer import (
    HistoryBacklog,
    HistoryBatch,
    HistoryWriter,
    Record,
    batch_of,
)
from arriero.balancer.store.records import (
    EndedRequest,
    EndingFilter,
    SavedStep,
    StepRange,
    StoreStatus,
    UsageQuery,
    UsageRow,
)
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

from .conftest import OpenStore
from .fakes import FakeStore


def step(at: int) -> SavedStep:
    return SavedStep(1, at, "{}")


def ending(id: str) -> EndedRequest:
    return EndedRequest(id=id, ended_at=0, kind="generate", code="stop", caller="anonymous")


def usage(day: int, requests: int = 1, caller: str = "alice") -> UsageRow:
    return UsageRow(run="run", day=day, caller=caller, model="tiny", requests=requests)


def taken(backlog: HistoryBacklog) -> list[Record]:
    """All that waits; it is written."""
    batch = backlog.next_batch()
    backlog.written(batch, None)
    return list(batch)


def test_records_are_written_by_their_kinds() -> None:
    backlog = HistoryBacklog()
    assert not backlog.has_any
    assert backlog.append([step(1)], [ending("r")], [usage(1)]) == 0
    assert backlog.has_any and len(backlog) == 3
    assert backlog.unwritten == HistoryBatch((step(1),), (ending("r"),)), "no usage"
    assert batch_of(backlog.next_batch()) == HistoryBatch((step(1),), (ending("r"),), (usage(1),))
    assert len(taken(backlog)) == 3
    assert not backlog.has_any and backlog.unwritten == HistoryBatch()


def test_what_comes_during_a_try_is_not_lost_and_not_written_twice() -> None:
    backlog = HistoryBacklog()
    backlog.append([step(1)], [])
    tried = backlog.next_batch()
    backlog.append([step(2)], [])
    backlog.written(tried, None)
    assert taken(backlog) == [step(2)]


def test_a_part_may_be_written_and_one_lost() -> None:
    backlog = HistoryBacklog()
    backlog.append([step(at) for at in range(4)], [ending("r")])
    batch = backlog.next_batch()
    backlog.written(batch[:2], None)
    backlog.lost(batch[2])
    assert backlog.unwritten == HistoryBatch((step(3),), (ending("r"),))


def test_the_oldest_of_the_history_are_dropped_and_counted() -> None:
    backlog, room = HistoryBacklog(), history_writer.MAX_STEPS
    assert backlog.append([step(at) for at in range(room)], [ending("r")]) == 0
    assert backlog.append([step(room)], []) == 1
    found = batch_of(backlog.next_batch())
    assert (found.steps[0], found.steps[-1], len(found.steps)) == (step(1), step(room), room)
    assert found.endings == (ending("r"),)


def test_of_usage_the_newest_is_written() -> None:
    backlog = HistoryBacklog()
    backlog.append([], [], [usage(1), usage(1, caller="bob")])
    tried = backlog.next_batch()
    backlog.append([], [], [usage(1, requests=2)])
    assert list(backlog.next_batch()) == [usage(1, 2), usage(1, caller="bob")]
    backlog.written(tried, None)
    assert taken(backlog) == [usage(1, 2)], "what was written is not that"


def test_usage_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_writer, "MAX_USAGE", 2)
    backlog = HistoryBacklog()
    assert backlog.append([], [], [usage(day) for day in (1, 2, 3)]) == 1
    assert taken(backlog) == [usage(2), usage(3)]


pytestmark = pytest.mark.usefixtures("closes_stores")


class Running:
    """A writer that runs, and its store."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.writer = HistoryWriter(self.store)


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


async def test_while_the_store_is_away_writes_are_tried_until_it_is_back(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, health.__name__)
    running.store.goes_away()
    running.writer.append([step(1)], [ending("r")])
    await running.store.calls(2)
    status = running.writer.status()
    assert (status.problem, status.num_pending) == ("connection refused", 2)
    running.store.problem = None
    assert await running.writer.flush(HANGS)
    assert (running.store.history.steps, running.store.history.endings) == (
        [step(1)],
        [ending("r")],
    )
    assert not running.writer.status().is_away
    told = [each.getMessage() for each in caplog.records]
    assert told == ["the store is away: connection refused", "the store is back"]


async def test_a_flush_waits_no_longer_than_it_may(running: Running) -> None:
    running.store.goes_away()
    running.writer.append([step(1)], [])
    assert not await running.writer.flush(0.05)
    running.store.problem = None
    assert await running.writer.flush(5)
    assert running.store.history.steps == [step(1)]


async def test_a_store_that_does_not_last_is_given_no_history() -> None:
    bare = HistoryWriter(MemoryStore())
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
    writer = HistoryWriter(store)
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
