"""Ends a step of the history every second, and writes the history to the store."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from itertools import chain

from ..fleet.view import FleetTotals
from ..store.history import HistoryStore
from ..store.history_writer import HistoryBatch, HistoryWriter
from ..store.port import StoreAway
from ..store.records import (
    MAX_ENDINGS,
    STEPS_KEPT,
    EndedRequest,
    EndingFilter,
    SavedStep,
    StepRange,
    StepWidth,
    UsageQuery,
    UsageRow,
    UsageSum,
)
from .chart import By, Chart, chart
from .endings import Endings, latest
from .recorder import HistoryRecorder
from .series import OTHERS, Selection, Series, Step, beside, from_saved, to_saved
from .shared_past import ReportedSteps, SharedPast
from .usage import UsageLedger, added_up

logger = logging.getLogger(__name__)

WRITE_INTERVAL = 5
"""The seconds between two writes to the store."""

MOST_REPORTED = 120
"""The maximum seconds of unwritten history that other balancers get directly."""


class HistoryTask:
    """The history of a balancer. While `run` runs, `recorder` counts events.

    `clock` returns seconds since 1970 and never goes back. Records in `handed_over` were given to
    the store and are not written yet.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        handed_over: Callable[[], HistoryBatch] = HistoryBatch,
    ) -> None:
        self.clock = clock or _steady_clock()
        self.run_id = uuid.uuid4().hex
        self.endings = Endings()
        self.series = Series()
        self.usage = UsageLedger(self.run_id)
        self.recorder = HistoryRecorder(self.endings, self.usage, self.clock)
        self._handed_over = handed_over
        self._store: HistoryStore | None = None
        self._shared: SharedPast | None = None
        self._unwritten: list[tuple[Step, StepWidth]] = []
        self._closed_at = int(self.clock())
        self._charting = asyncio.Semaphore(1)

    async def restore(self, store: HistoryStore) -> None:
        """Read the history from the store. If the store is away, the history starts empty.

        After this call, `used` also reads from the store.
        """
        self._store = store
        now = int(self.clock())
        try:
            seconds = await store.load_steps(StepRange(1, now - STEPS_KEPT[1]))
            minutes = await store.load_steps(StepRange(60, now - 60 * STEPS_KEPT[60]))
            endings, _ = await store.find_endings(EndingFilter(limit=MAX_ENDINGS))
        except StoreAway as error:
            logger.warning("the history starts empty, because the store is away: %s", error)
            return
        self.series.restore(*await asyncio.to_thread(_restored, seconds, minutes, now))
        self.endings.restore(reversed(endings))

    def share(self, store: HistoryStore) -> None:
        """Use a store that several balancers share. Call this method in place of `restore`.

        The past of other balancers is read from the store when a reader asks.
        """
        self._store = store
        self._shared = SharedPast(store, self.run_id)

    async def models_served(self, seconds: float) -> set[str]:
        """Return the models that generated text in the last `seconds`."""
        async with self._charting:
            selections = await self._since(int(self.clock() - seconds), {})
        steps = [step for selection in selections for step in selection.steps]
        sums = (item for step in steps for item in step.models.items())
        return {name for name, each in sums if each.completion_tokens} - {OTHERS}

    async def run(self, totals: Callable[[], FleetTotals], writer: HistoryWriter) -> None:
        """End a step every second, until cancelled."""
        while True:
            await asyncio.sleep(1 - self.clock() % 1)
            self.tick(totals())
            if self._closed_at % WRITE_INTERVAL == 0:
                self.write(writer)

    def tick(self, totals: FleetTotals) -> None:
        """End the present step, which is longer than a second if the event loop was late."""
        now = int(self.clock())
        if now <= self._closed_at:
            return
        step = self.recorder.close_step(self._closed_at, now - self._closed_at, totals)
        self._closed_at = now
        minutes = self.series.add(step)
        self._unwritten += [(step, 1), *((each, 60) for each in minutes)]
        del self._unwritten[: -STEPS_KEPT[1]]

    def write(self, writer: HistoryWriter) -> None:
        """Give the store everything that is new since the last call."""
        steps, self._unwritten = self._unwritten, []
        endings = self.endings.take_unwritten()
        usage = self.usage.take_unwritten()
        if writer.keeps_history:
            saved = [to_saved(step, width, self.run_id) for step, width in steps]
            writer.append(saved, endings, usage)

    def end(self, totals: FleetTotals, writer: HistoryWriter) -> None:
        """Give the store everything, because this balancer is ending."""
        self.tick(totals)
        if self._shared is not None:  # else the minute goes on after the next start
            self._unwritten += [(each, 60) for each in self.series.begun_minutes()]
        self.write(writer)

    # ---- what readers get

    async def chart(
        self,
        since: int,
        step: int,
        by: By | None,
        name: str | None = None,
        reported: ReportedSteps | None = None,
    ) -> Chart:
        """Return the chart since the time `since`. A thread computes one chart at a time.

        `reported` are steps of other balancers that the store does not have yet.
        """
        async with self._charting:
            selections = await self._since(since, reported or {})
            return await asyncio.to_thread(chart, selections, step, by, name)

    async def _since(self, at: int, reported: ReportedSteps) -> list[Selection]:
        own = self.series.since(at)
        if self._shared is None:
            return [own]
        return [own, await self._shared.steps_since(at, int(self.clock()), reported)]

    async def ended(
        self, criteria: EndingFilter, reported: Iterable[EndedRequest] = (), num_reported: int = 0
    ) -> tuple[list[EndedRequest], int]:
        """Return the ended requests that match `criteria`, and the number of all stored requests.

        `reported` are requests of other balancers that the store does not have yet, and
        `num_reported` is their number.
        """
        if self._shared is not None:
            unwritten = self.unwritten_endings()
            found = await self._shared.ended(criteria, [*unwritten, *reported])
            if found is not None:
                return found[0], min(found[1] + len(unwritten) + num_reported, MAX_ENDINGS)
        own = self.endings.choose(criteria)
        return latest([*own, *reported], criteria), min(
            len(self.endings) + num_reported, MAX_ENDINGS
        )

    # ---- what other balancers get

    def unwritten_steps(self) -> list[Step]:
        """Return the steps of seconds that are not in the store yet, oldest first.

        Returns at most the last `MOST_REPORTED` steps.
        """
        given = (each.at for each in self._handed_over().steps if each.width == 1)
        later = (step.at for step, width in self._unwritten if width == 1)
        oldest = next(chain(given, later), None)  # the store has all before it
        return [] if oldest is None else self.series.latest_seconds(MOST_REPORTED, oldest)

    def unwritten_endings(self) -> list[EndedRequest]:
        """Return the ended requests that are not in the store yet, oldest first."""
        return [*self._handed_over().endings, *self.endings.unwritten]

    async def used(self, query: UsageQuery) -> list[UsageSum]:
        """Return the usage of all callers, from all runs of balancers in the store.

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
    """Return the stored steps, without unreadable steps and without steps in the future.

    Steps of several balancers at the same time are added up.
    """
    steps = []
    for saved in (seconds, minutes):
        by_time: dict[int, list[Step]] = {}
        for each in saved:
            if each.at < now and (step := from_saved(each)) is not None:
                by_time.setdefault(each.at, []).append(step)
        steps.append([beside(each) for each in by_time.values()])
    return steps[0], steps[1]


def _steady_clock() -> Callable[[], float]:
    epoch = time.time() - time.monotonic()
    return lambda: epoch + time.monotonic()
