"""The history and ended requests of all balancers that share a store.

What the store does not have yet, the others report: the caller passes that on.
"""

import asyncio
from collections.abc import Iterable, Mapping

from ..store.health import StoreHealth
from ..store.history import HistoryStore
from ..store.port import StoreAway
from ..store.records import EndedRequest, EndingFilter, SavedStep, StepRange
from .endings import latest
from .other_steps import FromSource, OtherSteps
from .series import Selection, Step, from_saved

ReportedSteps = Mapping[str, Iterable[Step]]
"""The other balancers' own steps, by the run of the balancer."""

Read = list[tuple[StepRange, list[SavedStep]]]
"""The store's steps of each range."""


class SharedPast:
    """`run` is this balancer's own, whose steps are not read: they are in memory."""

    def __init__(self, store: HistoryStore, run: str) -> None:
        self._store = store
        self._run = run
        self._others = OtherSteps()
        self._health = StoreHealth("the store of other balancers' past")

    async def steps_since(self, since: int, now: int, reported: ReportedSteps) -> Selection:
        """The steps of all others. While the store is away, those that were read before.

        Only one call at a time.
        """
        read = await self._read(since, now)
        return await asyncio.to_thread(self._selection, read, since, now, reported)

    async def ended(
        self, criteria: EndingFilter, unwritten: Iterable[EndedRequest]
    ) -> tuple[list[EndedRequest], int] | None:
        """Ended requests of the store and `unwritten`, in order; and how many the store has.

        `None` while the store is away.
        """
        try:
            stored, num = await self._store.find_endings(criteria)
        except StoreAway as error:
            self._health.went_away(error)
            return None
        self._health.answered()
        return latest([*unwritten, *stored], criteria), num

    async def _read(self, since: int, now: int) -> Read | None:
        """Read the missing steps for a look back; `None` while the store is away."""
        read: Read = []
        try:
            for step_range in self._others.unread(since, now):
                read.append((step_range, await self._store.load_steps(step_range, but=self._run)))
        except StoreAway as error:
            self._health.went_away(error)
            return None
        self._health.answered()
        return read

    def _selection(
        self,
        read: Read | None,
        since: int,
        now: int,
        reported: ReportedSteps,
    ) -> Selection:
        if read is not None:
            self._others.take([(step_range, _readable(saved)) for step_range, saved in read], now)
        self._others.hear(reported)
        return self._others.since(since, now)


def _readable(saved: Iterable[SavedStep]) -> list[FromSource]:
    steps = ((each.source, from_saved(each)) for each in saved)
    return [(source, step) for source, step in steps if step is not None]
