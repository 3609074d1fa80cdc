"""The history's time, and what the store is given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.view import FleetTotals
from arriero.balancer.history.history_task import MOST_REPORTED, HistoryTask
from arriero.balancer.store.history_writer import HistoryWriter
from arriero.balancer.store.records import EndingFilter, UsageQuery
from tests.balancer.fleet.recording import ManualClock
from tests.balancer.history.builders import TOTALS, ending
from tests.balancer.store.fakes import FakeStore
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

pytestmark = pytest.mark.usefixtures("closes_stores")

HERE = Origin("ana", "tiny")


@asynccontextmanager
async def writing(store: FakeStore) -> AsyncIterator[HistoryWriter]:
    writer = HistoryWriter(store)
    task = asyncio.create_task(writer.run())
    yield writer
    assert await writer.flush(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_steps_are_as_long_as_the_time_that_passed() -> None:
    clock = ManualClock(1000.25)
    history = HistoryTask(clock=clock)
    history.tick(TOTALS)
    history.recorder.tokens(8, HERE)
    clock.now = 1001.0
    history.tick(TOTALS)
    history.recorder.tokens(9, HERE)
    clock.now = 1004.9  # the event loop was late
    history.tick(TOTALS)
    found = await history.chart(0, 1, None)
    assert found.times == [1000, 1001]
    assert found.lines[0].tokens_per_second == [8, 3]


async def test_it_ticks_by_itself() -> None:
    history = HistoryTask()
    history.recorder.tokens(8, HERE)
    has_looked = asyncio.Event()

    def totals() -> FleetTotals:
        has_looked.set()
        return TOTALS

    task = asyncio.create_task(history.run(totals, HistoryWriter(FakeStore())))
    async with asyncio.timeout(HANGS):
        await has_looked.wait()
    task.cancel()
    [line] = (await history.chart(0, 1, "agent")).lines
    [rate] = line.tokens_per_second
    assert line.name == "ana" and 0 < rate <= 8, "a busy machine may tick late"


async def test_a_history_goes_on_after_a_restart() -> None:
    store, clock = FakeStore(), ManualClock(1000.0)
    before = HistoryTask(clock=clock)
    async with writing(store) as writer:
        for _ in range(90):
            before.recorder.tokens(4, HERE)
            clock.now += 1
            before.tick(TOTALS)
        before.recorder.ended(ending("old"))
        before.write(writer)
    assert len(store.history.steps) == 92, "90 seconds and 2 minutes"
    after = HistoryTask(clock=clock)
    await after.restore(store.history)
    clock.now += 1
    after.recorder.ended(ending("new"))
    after.tick(TOTALS)
    found = await after.chart(0, 1, None)
    assert (found.times[0], found.times[-1], len(found.times)) == (1000, 1090, 91)
    assert [each.id for each in after.endings.choose(EndingFilter())] == ["new", "old"]
    async with writing(store) as writer:
        after.write(writer)
    assert [each.id for each in store.history.endings] == ["old", "new"]
    after.series.check_integrity()


async def test_what_is_in_the_future_is_not_read_back() -> None:
    store, clock = FakeStore(), ManualClock(5000.0)
    history = HistoryTask(clock=clock)
    async with writing(store) as writer:
        clock.now += 1
        history.tick(TOTALS)
        history.write(writer)
    clock.now = 4000.0  # the wall clock was set back between the two
    again = HistoryTask(clock=clock)
    await again.restore(store.history)
    assert (await again.chart(0, 1, None)).times == []


async def test_without_its_store_a_history_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    store.goes_away()
    history = HistoryTask(clock=ManualClock())
    await history.restore(store.history)
    assert "the history starts empty, because the store is away: connection refused" in caplog.text


async def test_a_store_that_does_not_last_is_given_nothing() -> None:
    clock = ManualClock()
    history = HistoryTask(clock=clock)
    writer = HistoryWriter(MemoryStore())
    clock.now += 1
    history.tick(TOTALS)
    history.write(writer)
    assert writer.status().num_pending == 0


USED = UsageQuery(since=0, until=10, by=("caller",), limit=10)


async def test_usage_goes_on_after_a_restart() -> None:
    store, clock = FakeStore(), ManualClock(1000.0)
    before = HistoryTask(clock=clock)
    await before.restore(store.history)
    async with writing(store) as writer:
        before.recorder.ended(ending("a"))
        before.write(writer)
        before.recorder.ended(ending("b"))
        assert [each.requests for each in await before.used(USED)] == [2], "once, and up to now"
        before.write(writer)
    after = HistoryTask(clock=clock)
    await after.restore(store.history)
    assert [each.requests for each in await after.used(USED)] == [2]
    after.recorder.ended(ending("c"))
    [used] = await after.used(USED)
    assert (used.caller, used.requests, used.completion_tokens) == ("anonymous", 3, 21)


async def test_without_a_store_usage_is_in_memory() -> None:
    history = HistoryTask(clock=ManualClock(1000.0))
    assert await history.used(USED) == []
    history.recorder.ended(ending("a"))
    assert [each.requests for each in await history.used(USED)] == [1]


async def test_which_models_were_served_lately_also_before_a_restart() -> None:
    clock = ManualClock(1000.0)
    store = FakeStore()
    history = HistoryTask(clock=clock)
    for model in ("old", "new"):
        history.recorder.tokens(8, Origin("ana", model))
        history.recorder.ended(ending())
        clock.now += 100.0
        history.tick(TOTALS)
    async with writing(store) as writer:
        history.write(writer)
    restarted = HistoryTask(clock=clock)
    await restarted.restore(store.history)
    assert await restarted.models_served(150.0) == {"new"}
    assert await restarted.models_served(250.0) == {"old", "new"}


# ---- several balancers over one store


class Balancer:
    """One of several, with a writer that writes when a test says so."""

    def __init__(self, store: FakeStore, clock: ManualClock) -> None:
        self._store = store
        self.writer = HistoryWriter(store)
        self.history = HistoryTask(clock=clock, handed_over=self.writer.unwritten)
        self.history.share(store.history)

    def count(self, tokens: int) -> None:
        self.history.recorder.tokens(tokens, HERE)
        self.history.tick(TOTALS)

    async def write(self) -> None:
        self.history.write(self.writer)
        task = asyncio.create_task(self.writer.run())
        assert await self.writer.flush(5)
        task.cancel()

    async def ended(self, *others: "Balancer", limit: int = 200) -> tuple[list[str], int]:
        reported = [each for other in others for each in other.history.unwritten_endings()]
        found, total = await self.history.ended(EndingFilter(limit=limit), reported, len(reported))
        return [each.id for each in found], total

    async def tokens(self, *others: "Balancer") -> list[float]:
        reported = {each.history.run_id: each.history.unwritten_steps() for each in others}
        return (await self.history.chart(900, 1, None, None, reported)).lines[0].tokens_per_second


async def test_the_past_of_all_balancers_is_one() -> None:
    store, clock = FakeStore(), ManualClock(1000.0)
    one, two = Balancer(store, clock), Balancer(store, clock)
    for number in range(4):
        clock.now += 1
        one.count(10)
        two.count(number)
        for each in (one, two):
            each.history.recorder.ended(ending(f"{'ab'[each is two]}{number}"))
        if number == 1:
            await one.write()
            await two.write()
    two.history.write(two.writer)  # it waits for the store
    assert await one.tokens(two) == await two.tokens(one) == [10, 11, 12, 13]
    all_ended = (["a3", "b3", "a2", "b2", "a1", "b1", "a0", "b0"], 8)
    assert await one.ended(two) == await two.ended(one) == all_ended
    assert await one.ended(two, limit=3) == (["a3", "b3", "a2"], 8)
    await one.write()
    await two.write()
    assert await one.tokens() == [10, 11, 12, 13], "nothing is told any more"
    assert await one.ended() == all_ended
    assert one.history.unwritten_endings() == one.history.unwritten_steps() == []


async def test_the_past_of_a_balancer_that_is_gone_stays() -> None:
    store, clock = FakeStore(), ManualClock(1000.0)
    gone = Balancer(store, clock)
    for _ in range(30):
        clock.now += 1
        gone.count(6)
    gone.history.recorder.ended(ending("old"))
    gone.history.end(TOTALS, gone.writer)
    await gone.write()
    minutes = [each for each in store.history.steps if each.width == 60]
    assert [(each.at, each.source) for each in minutes] == [
        (960, gone.history.run_id),
        (1020, gone.history.run_id),
    ], "the minute in which it went, too"
    later = Balancer(store, clock)
    assert await later.ended() == (["old"], 1)
    assert sum(await later.tokens()) == 30 * 6
    assert await later.history.models_served(60.0) == {"tiny"}


async def test_while_the_store_is_away_each_knows_its_own_and_what_it_is_told() -> None:
    store, clock = FakeStore(), ManualClock(1000.0)
    one, two = Balancer(store, clock), Balancer(store, clock)
    one.count(0)
    clock.now += 1
    one.count(5)
    await one.write()
    one.history.recorder.ended(ending("a"))
    two.history.recorder.ended(ending("b"))
    store.goes_away()
    assert await one.tokens(two) == [5]
    assert await one.ended(two) == (["a", "b"], 2)


async def test_steps_that_are_told_are_bounded() -> None:
    clock = ManualClock(1000.0)
    balancer = Balancer(FakeStore(), clock)
    for number in range(3 * MOST_REPORTED):
        clock.now += 1
        balancer.count(number)
        if number == 2 * MOST_REPORTED:
            balancer.history.write(balancer.writer)
    reported = balancer.history.unwritten_steps()
    assert [each.at for each in reported] == list(range(1240, 1360))


async def test_steps_are_told_as_they_were_counted() -> None:
    clock = ManualClock(1000.0)
    balancer = Balancer(FakeStore(), clock)
    for tokens in (3, 5, 7):
        clock.now += 1
        balancer.count(tokens)
        await balancer.write()
    for tokens in (11, 13):
        clock.now += 1
        balancer.count(tokens)
        balancer.history.write(balancer.writer)  # it waits for the store
    clock.now += 1
    balancer.count(17)
    reported = balancer.history.unwritten_steps()
    assert [each.fleet.completion_tokens for each in reported] == [11, 13, 17]
    assert all(any(each is kept for kept in balancer.history.series.seconds) for each in reported)
