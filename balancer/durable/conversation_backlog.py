"""The conversations that wait to be written to the store, and their order.

Invariant: at most `MOST_WAITING` conversations wait, with at most `most_bytes` together. Beyond
that, the owner with most bytes loses its oldest conversations.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..fleet.shares import FairEviction

MOST_WAITING = 2048
MOST_WRITTEN = 64
"""Maximum conversations in one transaction."""

MOST_BYTES_WRITTEN = 8 * 1024 * 1024
"""Maximum bytes in one transaction, as conversations count them; a single one may have more."""


@dataclass(frozen=True, slots=True)
class UnwrittenConversation:
    """A conversation of `kind` under its id, with its size. `owner` is in saved form."""

    id: str
    kind: str
    owner: str
    entry: Any
    num_bytes: int


class ConversationBacklog:
    """The `Backlog` of conversations' ids."""

    def __init__(self, most_bytes: int) -> None:
        self._waiting: dict[str, UnwrittenConversation] = {}
        self.alone: dict[str, None] = {}
        """The last conversations that are never written: they continue at this balancer alone."""
        self.pool: FairEviction[str, str] = FairEviction(most_bytes, MOST_WAITING)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, id: str) -> bool:
        return id in self._waiting

    def get(self, id: str) -> UnwrittenConversation | None:
        """Return the waiting conversation with this id, if any."""
        return self._waiting.get(id)

    @property
    def has_any(self) -> bool:
        """Whether any conversation waits to be written."""
        return bool(self._waiting)

    def add(self, new: UnwrittenConversation) -> int:
        """Add a conversation. Returns how many were given up for it, perhaps itself."""
        self.drop(new.id)
        self.alone.pop(new.id, None)
        self._waiting[new.id] = new
        self.pool.add(new.id, new.owner, new.num_bytes)
        num = len(self)
        while (given_up := self.pool.evict()) is not None:
            del self._waiting[given_up]
            self._give_up(given_up)
        return num - len(self)

    def drop(self, id: str) -> None:
        """Remove a conversation that need not be written any more."""
        if self._waiting.pop(id, None) is not None:
            self.pool.remove(id)

    # ---- writing

    def next_batch(self) -> Sequence[str]:
        """Return the next conversations to write, oldest first."""
        batch: list[str] = []
        num_bytes = 0
        for each in self._waiting.values():
            num_bytes += each.num_bytes
            is_full = num_bytes > MOST_BYTES_WRITTEN or len(batch) == MOST_WRITTEN
            if batch and is_full:
                break
            batch.append(each.id)
        return batch

    def unwritten(self, ids: Collection[str]) -> tuple[UnwrittenConversation, ...]:
        """Return the documents of these ids that still have to be written."""
        return tuple(each for id in ids if (each := self._waiting.get(id)) is not None)

    def written(self, _ids: Sequence[str], outcome: Sequence[UnwrittenConversation]) -> None:
        """Remove conversations that were written. If one was replaced since, the new one still
        waits.
        """
        for each in outcome:
            if self._waiting.get(each.id) is each:
                self.drop(each.id)

    def lost(self, item: str) -> None:
        """Give up `item`, which can never be written."""
        self.drop(item)
        self._give_up(item)

    def _give_up(self, id: str) -> None:
        self.alone[id] = None
        if len(self.alone) > MOST_WAITING:
            del self.alone[next(iter(self.alone))]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        self.pool.check_integrity()
        if self.pool.sizes.total != sum(each.num_bytes for each in self._waiting.values()):
            raise RuntimeError("the bytes do not add up")
        if len(self) > MOST_WAITING or self.pool.sizes.total > self.pool.sizes.bound:
            raise RuntimeError("more waits than may")
