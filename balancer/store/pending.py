"""What waits to be written to a store: in which order, for how long, and how much of it.

Saves of the desired state go first, in their order. Batches of the history are joined into one.
Invariants: at most `MAX_SAVES` saves wait, and `MAX_HISTORY` records and `MAX_USAGE` rows of
usage besides the batch that is being tried; each save has one outcome.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

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


Write = Persist | HistoryBatch


class PendingWrites:
    """Ask for `next_write`, try it, and tell how that ended; one write at a time."""

    def __init__(self) -> None:
        self._saves: deque[tuple[Persist, float]] = deque()
        self._history = HistoryBatch()
        self._trying = HistoryBatch()
        self._pause = FIRST_PAUSE
        self._retry_at: float | None = None
        self._away_since: float | None = None
        self._problem: str | None = None
        self._num_dropped = 0

    def __len__(self) -> int:
        return len(self._saves) + len(self._trying) + len(self._history)

    def status(self) -> StoreStatus:
        """How the store is."""
        return StoreStatus(self._away_since, self._problem, len(self), self._num_dropped)

    @property
    def unwritten(self) -> HistoryBatch:
        """Records of the history that the store does not have, as far as is known; no usage."""
        trying, later = self._trying, self._history
        return HistoryBatch(trying.steps + later.steps, trying.endings + later.endings)

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
        self._trying = self._joined(self._trying, self._history)
        self._history = HistoryBatch()
        return self._trying or None

    def retry_at(self) -> float | None:
        """When to try again, after a failure; `None` for at once."""
        return self._retry_at

    # ---- how a try ended

    def saved(self) -> Persisted:
        """The first save is in the store."""
        self._is_back()
        return Persisted(self._saves.popleft()[0])

    def conflicted(self, current: SavedState | None) -> Conflicted:
        """The first save came too late."""
        self._is_back()
        return Conflicted(self._saves.popleft()[0], current)

    def appended(self) -> None:
        """The batch that was tried is in the store."""
        self._is_back()
        self._trying = HistoryBatch()

    def broke(self, write: Write, reason: str) -> list[NotPersisted]:
        """`write` can never be written: forget it."""
        if isinstance(write, Persist):
            self._saves.popleft()
            return [NotPersisted(write, reason)]
        self._num_dropped += len(self._trying)
        self._trying = HistoryBatch()
        return []

    def is_away(self, problem: str, now: float) -> list[NotPersisted]:
        """The store could not be reached; the saves whose time is over end with it."""
        if self._away_since is None:
            self._away_since = now
        self._problem = problem
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
        self._retry_at = self._away_since = self._problem = None

    def _joined(self, older: HistoryBatch, newer: HistoryBatch) -> HistoryBatch:
        """Both, without the oldest that there is no room for; those are counted."""
        room = MAX_HISTORY // 2
        steps, endings = older.steps + newer.steps, older.endings + newer.endings
        usage = _newest(older.usage + newer.usage)
        joined = HistoryBatch(steps[-room:], endings[-room:], usage[-MAX_USAGE:])
        self._num_dropped += len(steps) + len(endings) + len(usage) - len(joined)
        return joined


def _newest(rows: Sequence[UsageRow]) -> tuple[UsageRow, ...]:
    """The last of each day, caller and model."""
    return tuple({(row.day, row.caller, row.model): row for row in rows}.values())
