"""Writing behind: nobody waits for it, and what cannot be written costs itself alone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.store import health, write_behind
from arriero.balancer.store.health import LOST, StoreHealth
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import StoreStatus
from arriero.balancer.store.write_behind import WriteBehind
from tests.waiting import HANGS, given_time


class Numbers:
    """A backlog, and the store that they are written to."""

    def __init__(self, *waiting: int) -> None:
        self.waiting = list(waiting)
        self.saved: list[int] = []
        self.lost_ones: list[int] = []
        self.unwritable: set[int] = set()
        self.batches: list[Sequence[int]] = []
        """All that was tried."""
        self.problem: Exception | None = None
        self.problems: dict[int, Exception] = {}
        """Of some tries, by their number."""
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.tried = asyncio.Condition()

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def has_any(self) -> bool:
        return bool(self.waiting)

    def next_batch(self) -> Sequence[int]:
        return tuple(self.waiting)

    def written(self, items: Sequence[int], outcome: int) -> None:
        assert outcome == len(items)
        self.saved += items
        self.waiting = [each for each in self.waiting if each not in items]

    def lost(self, item: int) -> None:
        self.lost_ones.append(item)
        self.waiting.remove(item)

    async def write(self, items: Sequence[int]) -> int:
        async with self.tried:
            self.batches.append(items)
            self.tried.notify_all()
        await self.is_open.wait()
        problem = self.problems.get(len(self.batches), self.problem)
        if problem is not None:
            raise problem
        if self.unwritable & set(items):
            raise OverflowError("too large\nvalues of all the others")
        return len(items)

    async def tries(self, number: int) -> None:
        """Wait until so many were made."""
        async with asyncio.timeout(HANGS), self.tried:
            await self.tried.wait_for(lambda: len(self.batches) >= number)

    def behind(self, gather: float = 0.0) -> WriteBehind[int, int]:
        return WriteBehind(
            self,
            self.write,
            health=StoreHealth("the store"),
            loss="a number is lost",
            name_of=lambda number: {"number": number},
            gather=gather,
        )


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(write_behind, "LONGEST_PAUSE", 0.002)


class Running:
    """One that runs."""

    def __init__(self) -> None:
        self.numbers = Numbers()
        self.writer = self.numbers.behind()

    def add(self, *numbers: int) -> None:
        self.numbers.waiting += numbers
        self.writer.stir()


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    running = Running()
    task = asyncio.create_task(running.writer.run())
    yield running
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def written(numbers: Numbers) -> WriteBehind[int, int]:
    """All that waits, by one that runs for it alone."""
    writer = numbers.behind()
    writer.stir()
    task = asyncio.create_task(writer.run())
    assert await writer.flush(HANGS)
    task.cancel()
    return writer


async def test_what_waits_is_written_at_once_and_together(running: Running) -> None:
    running.add(1, 2)
    assert await running.writer.flush(HANGS)
    running.add(3)
    assert await running.writer.flush(HANGS)
    assert running.numbers.batches == [(1, 2), (3,)]
    assert running.writer.status() == StoreStatus()


async def test_what_was_stirred_before_it_runs_is_written() -> None:
    numbers = Numbers(1)
    await written(numbers)
    assert numbers.saved == [1]


async def test_a_store_that_is_away_is_tried_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_behind, "FIRST_PAUSE", 1.0)
    monkeypatch.setattr(write_behind, "LONGEST_PAUSE", 4.0)
    numbers = Numbers(1)
    numbers.problem = StoreAway("connection refused")
    writer = numbers.behind()
    writer.stir()
    async with given_time() as time:
        task = asyncio.create_task(writer.run())
        tried = []
        for number in range(1, 7):
            await time.passes_until(lambda wanted=number: len(numbers.batches) >= wanted, step=0.1)
            tried.append(time.now)
        task.cancel()
    pauses = [round(later - earlier) for earlier, later in pairwise(tried)]
    assert pauses == [1, 2, 4, 4, 4]


async def test_while_the_store_is_away_writes_are_tried_until_it_is_back(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, health.__name__)
    running.numbers.problem = StoreAway("connection refused")
    running.add(1)
    await running.numbers.tries(3)
    running.add(2)
    await running.numbers.tries(5)
    status = running.writer.status()
    assert (status.problem, status.num_pending) == ("connection refused", 2)
    running.numbers.problem = None
    assert await running.writer.flush(HANGS)
    assert running.numbers.saved == [1, 2]
    assert not running.writer.status().is_away
    told = [each.getMessage() for each in caplog.records]
    assert told == ["the store is away: connection refused", "the store is back"]


async def test_a_store_that_hangs_counts_as_away(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "TRY_TIMEOUT", 0.02)
    running.numbers.is_open.clear()
    running.add(1)
    await running.numbers.tries(2)
    assert running.writer.status().problem == "no answer within 0.02 s"
    running.numbers.is_open.set()
    assert await running.writer.flush(HANGS)


async def test_a_store_that_is_too_slow_for_much_gets_less_at_once(running: Running) -> None:
    running.numbers.problem = StoreAway("too slow")
    running.add(*range(8))
    await running.numbers.tries(3)
    running.numbers.problem = None
    assert await running.writer.flush(HANGS)
    assert [len(each) for each in running.numbers.batches[:3]] == [8, 4, 2]
    assert sum(len(each) for each in running.numbers.batches[3:]) == 8
    running.add(*range(10, 30))
    assert await running.writer.flush(HANGS)
    assert sorted(running.numbers.saved) == [*range(8), *range(10, 30)]


NUM = 24


@given(st.sets(st.integers(0, NUM - 1)))
async def test_what_cannot_be_written_costs_itself(unwritable: set[int]) -> None:
    numbers = Numbers(*range(NUM))
    numbers.unwritable = unwritable
    writer = await written(numbers)
    assert numbers.saved == [each for each in range(NUM) if each not in unwritable]
    assert numbers.lost_ones == sorted(unwritable)
    fault = LOST if unwritable else None
    assert writer.status() == StoreStatus(num_dropped=len(unwritable), fault=fault)


async def test_one_bad_item_of_many_is_found_in_few_tries() -> None:
    numbers = Numbers(*range(1024))
    numbers.unwritable = {700}
    await written(numbers)
    assert len(numbers.batches) == 21, "each of ten halvings is two tries"
    assert numbers.lost_ones == [700]


async def test_all_is_well_once_a_batch_is_written_whole(running: Running) -> None:
    running.numbers.unwritable = {2}
    running.add(1, 2)
    assert await running.writer.flush(HANGS)
    assert running.writer.status() == StoreStatus(num_dropped=1, fault=LOST)
    running.add(3)
    assert await running.writer.flush(HANGS)
    assert running.writer.status() == StoreStatus(num_dropped=1)


async def test_the_log_has_one_traceback_for_many_losses(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.numbers.unwritable = {1, 2, 3}
    running.add(1, 2, 3)
    assert await running.writer.flush(HANGS)
    assert [line.exc_info is None for line in caplog.records] == [False, True, True]
    told = {each.getMessage() for each in caplog.records}
    assert told == {"a number is lost: OverflowError: too large"}


async def test_a_store_that_goes_away_during_the_search_gets_the_rest_later(
    running: Running,
) -> None:
    numbers = running.numbers
    fault = OverflowError("too large")
    numbers.problems = {1: fault, 2: fault, 3: fault, 4: StoreAway("gone")}
    running.add(*range(4))
    assert await running.writer.flush(HANGS)
    assert numbers.batches[:4] == [(0, 1, 2, 3), (0, 1), (0,), (1,)]
    assert (numbers.lost_ones, numbers.saved) == ([0], [1, 2, 3])
    assert running.writer.status() == StoreStatus(num_dropped=1)


async def test_who_waits_for_a_write_learns_what_is_lost(running: Running) -> None:
    running.numbers.unwritable = {2}
    running.numbers.is_open.clear()
    running.add(1, 2)
    waiting = asyncio.create_task(running.writer.written())
    await running.numbers.tries(1)
    assert running.writer.under_way == (1, 2)
    running.numbers.is_open.set()
    assert await waiting == [2]
    assert running.writer.under_way == ()


async def test_a_flush_waits_no_longer_than_it_may(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.numbers.problem = StoreAway("gone")
    running.add(1, 2)
    assert not await running.writer.flush(0.05)
    assert "2 writes to the store did not finish in time and are lost" in caplog.text
    running.numbers.problem = None
    assert await running.writer.flush(HANGS)


async def test_what_is_not_urgent_is_gathered_until_something_is_or_a_flush_comes() -> None:
    numbers = Numbers()
    writer = numbers.behind(gather=HANGS)
    task = asyncio.create_task(writer.run())
    for end in ("urgent", "flush"):
        for number in (1, 2):
            numbers.waiting.append(number)
            writer.stir(is_urgent=False)
            await asyncio.sleep(0)
        assert numbers.waiting == [1, 2]
        if end == "urgent":
            numbers.waiting.append(3)
            writer.stir()
            await numbers.tries(1)
        assert await writer.flush(HANGS)
    task.cancel()
    assert numbers.batches == [(1, 2, 3), (1, 2)]
