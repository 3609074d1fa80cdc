"""What waits to be written to a store: in which order, for how long, and how much of it.

Saves of the desired state go first, in their order. Batches of the history are joined into one.
Invariants: at most `MAX_SAVES` saves wait, and `MAX_HISTORY` records and `MAX_USAGE` rows of
usage besides the batch that is being tried; each save has one outcome.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from .health import WriteHealth
from .records import (
    Conflicted,
    EndedRequest,
    NotPersisted,
    Persist,
    Persisted,
    SavedState,
    SavedStep,
    StoreStatus,
    UsageRow,
)

MAX_SAVES = 16
MAX_HISTORY = 20_000
"""Steps and ended requests that wait; the oldest are dropped first."""

MAX_USAGE = 20_000
"""Rows of usage that wait: those of two days at least."""

SAVE_TIMEOUT = 10.0
"""Seconds for which a save is tried."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
"""Seconds between two tries while the store is away; the pause doubles."""


@dataclass(frozen=True, slots=True)
class HistoryBatch:
    """Records of the history to append together."""

    steps: tuple[SavedStep, ...] = ()
    endings: tuple[EndedRequest, ...] = ()
    usage: tuple[UsageRow, ...] = ()
    """One of each day, caller and model."""

    def __len__(self) -> int:
        return len(self.steps) + len(self.endings) + len(self.usage)

    def halves(self) -> "tuple[HistoryBatch, HistoryBatch]":
        """Both halves, in order; one of them is empty where there is one record."""
        middle = len(self) // 2
        in_endings = max(0, middle - len(self.steps))
        in_usage = max(0, in_endings - len(self.endings))
        return (
            HistoryBatch(self.steps[:middle], self.endings[:in_endings], self.usage[:in_usage]),
            HistoryBatch(self.steps[middle:], self.endings[in_endings:], self.usage[in_usage:]),
        )


Write = Persist | HistoryBatch


class PendingWrites:
    """Ask for `next_write`, try it, and report how that ended; one write at a time.

    A batch of which some record cannot be written is tried in halves, and these in halves, until
    that record is alone and is dropped. All others are written.
    """

    def __init__(self) -> None:
        self._saves: deque[tuple[Persist, float]] = deque()
        self._history = HistoryBatch()
        self._trying: deque[HistoryBatch] = deque()
        self._is_split = False
        self._num_unwritable = 0
        self._pause = FIRST_PAUSE
        self._retry_at: float | None = None
        self._health = WriteHealth()

    def __len__(self) -> int:
        return len(self._saves) + sum(map(len, self._trying)) + len(self._history)

    def status(self) -> StoreStatus:
        """How the store is."""
        return self._health.status(len(self))

    @property
    def unwritten(self) -> HistoryBatch:
        """Records of the history that the store does not have, as far as is known; no usage."""
        parts = (*self._trying, self._history)
        steps = tuple(step for part in parts for step in part.steps)
        return HistoryBatch(steps, tuple(each for part in parts for each in part.endings))

    def save(self, persist: Persist, now: float) -> NotPersisted | None:
        """Add a save, which is tried at once; its outcome, if there is no room for it."""
        if len(self._saves) >= MAX_SAVES:
            return NotPersisted(persist, f"{MAX_SAVES} saves wait already; try again later")
        self._saves.append((persist, now + SAVE_TIMEOUT))
        self._retry_at = None
        return None

    def append(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        """Add records of the history. Where too many wait, the oldest are dropped and counted."""
        batch = HistoryBatch(tuple(steps), tuple(endings), tuple(usage))
        self._history = self._joined(self._history, batch)

    def next_write(self) -> Write | None:
        """What to try next, if anything waits; not before `retry_at`."""
        if self._saves:
            return self._saves[0][0]
        if not self._is_split:
            self._rejoin(self._history)
            self._history = HistoryBatch()
        return self._trying[0] if self._trying else None

    def retry_at(self) -> float | None:
        """When to try again, after a failure; `None` for at once."""
        return self._retry_at

    # ---- how a try ended

    def saved(self) -> Persisted:
        """The first save is in the store."""
        self._is_back()
        self._health.wrote()
        return Persisted(self._saves.popleft()[0])

    def conflicted(self, current: SavedState | None) -> Conflicted:
        """The first save came too late."""
        self._is_back()
        return Conflicted(self._saves.popleft()[0], current)

    def appended(self) -> None:
        """What was tried is in the store."""
        self._is_back()
        self._part_ended()

    def broke(self, write: Write, reason: str) -> list[NotPersisted]:
        """`write` can never be written as it is: try its halves, or forget what has none."""
        self._is_back()
        if isinstance(write, Persist):
            self._health.failed()
            self._saves.popleft()
            return [NotPersisted(write, reason)]
        if len(write) > 1:
            self._is_split = True
            self._trying.popleft()
            self._trying.extendleft(reversed(write.halves()))
            return []
        self._num_unwritable += 1
        self._health.failed(1)
        self._part_ended()
        return []

    def is_away(self, problem: str, now: float) -> list[NotPersisted]:
        """The store could not be reached; the saves whose time is over end with it."""
        self._health.went_away(problem, now)
        self._rejoin()  # so that what waits is bounded; the search begins anew
        self._is_split = False
        overdue = self._overdue(now)
        self._retry_at = now + self._pause
        if self._saves:
            self._retry_at = min(self._retry_at, self._saves[0][1])
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return [NotPersisted(persist, f"the store is away: {problem}") for persist in overdue]

    def _overdue(self, now: float) -> list[Persist]:
        overdue = []
        while self._saves and self._saves[0][1] <= now:
            overdue.append(self._saves.popleft()[0])
        return overdue

    def _is_back(self) -> None:
        self._pause = FIRST_PAUSE
        self._retry_at = None
        self._health.answered()

    def _part_ended(self) -> None:
        self._trying.popleft()
        if not self._trying:
            if not self._num_unwritable:
                self._health.wrote()
            self._num_unwritable = 0
            self._is_split = False

    def _rejoin(self, newer: HistoryBatch = HistoryBatch()) -> None:
        """One batch of all that was to be tried, and of `newer`."""
        whole = reduce(self._joined, (*self._trying, newer), HistoryBatch())
        self._trying = deque([whole] if whole else [])

    def _joined(self, older: HistoryBatch, newer: HistoryBatch) -> HistoryBatch:
        """Both, without the oldest that there is no room for; those are counted."""
        room = MAX_HISTORY // 2
        steps, endings = older.steps + newer.steps, older.endings + newer.endings
        usage = _newest(older.usage + newer.usage)
        joined = HistoryBatch(steps[-room:], endings[-room:], usage[-MAX_USAGE:])
        self._health.num_lost += len(steps) + len(endings) + len(usage) - len(joined)
        return joined


def _newest(rows: Sequence[UsageRow]) -> tuple[UsageRow, ...]:
    """The last of each day, caller and model."""
    return tuple({(row.day, row.caller, row.model): row for row in rows}.values())
