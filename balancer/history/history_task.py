"""Keeps the history's time: closes a step each second, and hands the store what it should keep."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable

from ..fleet.view import FleetTotals
from ..store.port import HistoryStore, StoreAway
from ..store.records import (
    MAX_ENDINGS,
    STEPS_KEPT,
    SavedStep,
    StepWidth,
    UsageQuery,
    UsageRow,
    UsageSum,
)
from ..store.writer import StoreWriter
from .chart import By, Chart, chart
from .documents import from_saved, to_saved
from .endings import Endings
from .recorder import HistoryRecorder
from .series import OTHERS, Series, Step
from .usage import UsageLedger, added_up

logger = logging.getLogger(__name__)

WRITE_INTERVAL = 5
"""Seconds between two batches for the store."""


class History:
    """The balancer's history. `recorder` fills it while `run` runs.

    `clock` gives seconds since 1970 and never goes back: the wall clock's time at the start, and
    what has passed since.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or _steady_clock()
        self.endings = Endings()
        self.series = Series()
        self.usage = UsageLedger(uuid.uuid4().hex)
        self.recorder = HistoryRecorder(self.endings, self.usage, self.clock)
        self._store: HistoryStore | None = None
        self._unwritten: list[tuple[Step, StepWidth]] = []
        self._closed_at = int(self.clock())
        self._charting = asyncio.Semaphore(1)

    async def restore(self, store: HistoryStore) -> None:
        """Read back what a store kept. Without it if the store is away now.

        From now on `used` reads from it as well.
        """
        self._store = store
        now = int(self.clock())
        try:
            seconds = await store.load_steps(1, now - STEPS_KEPT[1])
            minutes = await store.load_steps(60, now - 60 * STEPS_KEPT[60])
            endings = await store.load_endings(MAX_ENDINGS)
        except StoreAway as error:
            logger.warning("the history begins anew, since the store is away: %s", error)
            return
        self.series.restore(*await asyncio.to_thread(_restored, seconds, minutes, now))
        self.endings.restore(endings)

    def models_served(self, seconds: float) -> set[str]:
        """Models that gave out text within the last `seconds`."""
        steps = self.series.since(int(self.clock() - seconds)).steps
        sums = (item for step in steps for item in step.models.items())
        return {name for name, each in sums if each.completion_tokens} - {OTHERS}

    async def run(self, totals: Callable[[], FleetTotals], writer: StoreWriter) -> None:
        """Close a step each second, until cancelled."""
        while True:
            await asyncio.sleep(1 - self.clock() % 1)
            self.tick(totals())
            if self._closed_at % WRITE_INTERVAL == 0:
                self.write(writer)

    def tick(self, totals: FleetTotals) -> None:
        """Close the step that has passed, which is longer if the event loop was late."""
        now = int(self.clock())
        if now <= self._closed_at:
            return
        step = self.recorder.close_step(self._closed_at, now - self._closed_at, totals)
        self._closed_at = now
        minutes = self.series.add(step)
        self._unwritten += [(step, 1), *((each, 60) for each in minutes)]
        del self._unwritten[: -STEPS_KEPT[1]]

    def write(self, writer: StoreWriter) -> None:
        """Hand over what came since the last call."""
        steps, self._unwritten = self._unwritten, []
        endings = self.endings.take_unwritten()
        usage = self.usage.take_unwritten()
        if writer.keeps_history:
            writer.append([to_saved(step, width) for step, width in steps], endings, usage)

    async def chart(self, since: int, step: int, by: By | None, name: str | None = None) -> Chart:
        """The steps from `since` on. On another thread, one at a time."""
        async with self._charting:
            return await asyncio.to_thread(chart, self.series.since(since), step, by, name)

    async def used(self, query: UsageQuery) -> list[UsageSum]:
        """What callers used, up to now, by every run of a balancer that the store knows.

        Raises `StoreAway`.
        """
        parts: list[UsageRow | UsageSum] = []
        if self._store is not None:
            held_from = query.until + 1 if self.usage.held_from is None else self.usage.held_from
            parts += await self._store.load_usage(query, self.usage.run, held_from)
        return added_up([*parts, *self.usage.rows(query.since, query.until)], query)


def _restored(
    seconds: Iterable[SavedStep], minutes: Iterable[SavedStep], now: int
) -> tuple[list[Step], list[Step]]:
    """Without what cannot be read, and without what the clock says has not been yet."""
    steps = [
        [step for each in saved if each.at < now and (step := from_saved(each)) is not None]
        for saved in (seconds, minutes)
    ]
    return steps[0], steps[1]


def _steady_clock() -> Callable[[], float]:
    epoch = time.time() - time.monotonic()
    return lambda: epoch + time.monotonic()
