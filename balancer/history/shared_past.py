"""The history and the ended requests of all balancers that share a store.

Other balancers report records that the store does not have yet. The caller passes these reports to
this module.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ..store.health import StoreHealth
from ..store.history import HistoryStore
from ..store.port import StoreAway
from ..store.records import STEPS_KEPT, EndedRequest, EndingFilter, SavedStep, StepRange, StepWidth
from .endings import latest
from .series import MINUTE, Selection, Step, beside, from_saved

LATE = 60
"""The maximum seconds by which a balancer may write a step late. Later steps are not read."""

LATELY = 300
"""The last seconds of a long chart, whose minutes may not be in the store yet."""

FORGOTTEN = 600
"""The seconds after which all steps are read again, including steps that were written late."""

HOUR = STEPS_KEPT[1]

FromSource = tuple[str, Step]
"""The run of the balancer that counted the step, and the step."""


class OtherSteps:
    """The steps of other balancers. Times are in seconds since 1970.

    First call `unread`, and read the returned ranges from the store. Then call `take` with the
    read steps, `hear` with the reported steps, and `since`. Pass the same `now` to all calls.
    """

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, now: int) -> None:
        self._begun_at = now
        self._unread_from: dict[StepWidth, int] = {}
        self._from: dict[StepWidth, int] = {}
        self._latest: dict[tuple[StepWidth, str], int] = {}
        self._steps: dict[StepWidth, dict[int, Step]] = {1: {}, 60: {}}
        self._reported: list[Step] = []

    @property
    def num_kept(self) -> int:
        """The number of steps in seconds and in minutes."""
        return sum(map(len, self._steps.values()))

    def unread(self, since: int, now: int) -> list[StepRange]:
        """Return the ranges to read from the store for a chart that begins at `since`."""
        if not 0 <= now - self._begun_at <= FORGOTTEN:
            self._begin(now)
        ranges: list[StepRange] = []
        for width, begin in _begins(since, now).items():
            known = self._from.get(width)
            if known is None:
                ranges.append(StepRange(width, begin))
                continue
            if begin < known:
                ranges.append(StepRange(width, begin, known))
            ranges.append(StepRange(width, max(known, self._unread_from[width])))
        return ranges

    def take(self, read: Sequence[tuple[StepRange, Iterable[FromSource]]], now: int) -> None:
        """Add the steps read from the store. One call must have all ranges of a step width."""
        taken: dict[StepWidth, dict[int, list[Step]]] = {1: {}, 60: {}}
        for step_range, steps in read:
            for source, step in steps:
                key = step_range.width, source
                latest = self._latest.get(key, -1)
                self._latest[key] = max(latest, step.at)
                if step_range.until is not None or step.at > latest:  # a source writes in order
                    taken[step_range.width].setdefault(step.at, []).append(step)
        for step_range, _ in read:
            known = self._from.get(step_range.width, step_range.since)
            self._from[step_range.width] = min(known, step_range.since)
            self._unread_from[step_range.width] = now - LATE - step_range.width
        for width, by_time in taken.items():
            self._add(width, by_time)
            self._forget(width, now - (STEPS_KEPT[width] + 1) * width)

    def hear(self, reported: Mapping[str, Iterable[Step]]) -> None:
        """Replace the steps that other balancers have reported; `reported` has them by run."""
        self._reported = []
        for source, steps in reported.items():
            latest = self._latest.get((1, source), -1)
            self._reported += (step for step in steps if step.at > latest)
        if self._reported and 1 in self._unread_from:
            oldest = min(step.at for step in self._reported)
            self._unread_from[1] = min(self._unread_from[1], oldest)

    def since(self, at: int, now: int) -> Selection:
        """Return all read and reported steps from `at` on.

        Steps after `now` are left out, because the clock of another host may be ahead.
        """
        begins = _begins(at, now)
        cut = begins[1]
        seconds = [each for each in self._with_reported().values() if cut <= each.at <= now]
        minutes = [each for each in self._steps[60].values() if at <= each.at < cut]
        if 60 not in begins:
            return Selection(_in_order(seconds), 1)
        return Selection(_in_order([*minutes, *seconds]), MINUTE)

    def _add(self, width: StepWidth, by_time: Mapping[int, list[Step]]) -> None:
        steps = self._steps[width]
        for at, new in by_time.items():
            steps[at] = beside([steps[at], *new] if at in steps else new)

    def _forget(self, width: StepWidth, before: int) -> None:
        steps = self._steps[width]
        for at in [at for at in steps if at < before]:
            del steps[at]
        if width in self._from:
            self._from[width] = max(self._from[width], before)

    def _with_reported(self) -> Mapping[int, Step]:
        """Return the steps of seconds from the store together with the reported steps."""
        seconds = dict(self._steps[1])
        for step in self._reported:
            at = step.at
            seconds[at] = beside([seconds[at], step]) if at in seconds else step
        return seconds


def _in_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(sorted(steps, key=lambda step: step.at))


def _begins(since: int, now: int) -> dict[StepWidth, int]:
    """Return the time from which steps of each width are read, for a look back to `since`.

    Up to an hour back, only seconds are read. Further back, minutes are read, and seconds only for
    the last `LATELY` seconds.
    """
    if since >= now - HOUR:
        return {1: since}
    lately = now - LATELY
    return {1: lately - lately % MINUTE, 60: since - since % MINUTE}


ReportedSteps = Mapping[str, Iterable[Step]]
"""The steps that each run of another balancer has reported."""

Read = list[tuple[StepRange, list[SavedStep]]]
"""The steps that were read from the store for each range."""


class SharedPast:
    """The history of other balancers. `run` is this balancer's run; its steps are in memory."""

    def __init__(self, store: HistoryStore, run: str) -> None:
        self._store = store
        self._run = run
        self._others = OtherSteps()
        self._health = StoreHealth("the store for the history of other balancers")

    async def steps_since(self, since: int, now: int, reported: ReportedSteps) -> Selection:
        """Return the steps of all other balancers since the time `since`.

        If the store is away, return the steps that were read before. Only one call may run at a
        time.
        """
        read = await self._read(since, now)
        return await asyncio.to_thread(self._selection, read, since, now, reported)

    async def ended(
        self, criteria: EndingFilter, unwritten: Iterable[EndedRequest]
    ) -> tuple[list[EndedRequest], int] | None:
        """Return the requests in the store and in `unwritten` that match `criteria`.

        Also returns the number of requests in the store. Returns `None` if the store is away.
        """
        try:
            stored, num = await self._store.find_endings(criteria)
        except StoreAway as error:
            self._health.went_away(error)
            return None
        self._health.answered()
        return latest([*unwritten, *stored], criteria), num

    async def _read(self, since: int, now: int) -> Read | None:
        """Read the missing steps since the time `since`. Returns `None` if the store is away."""
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
