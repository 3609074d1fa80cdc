"""Conversations that wait to be written to the store: which are next, and how much of it.

Invariants: at most `MOST_WAITING` wait, of `most_bytes` together, besides the ones that are being
written; of more, the oldest are given up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_WAITING = 2048
MOST_WRITTEN = 64
"""Conversations in one transaction."""

MOST_BYTES_WRITTEN = 8 * 1024 * 1024
"""In one transaction, as conversations count them; one alone may have more."""

MOST_USED = 2048
"""Conversations whose use waits to be noted; of more, the first ones are not."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A conversation of `kind` under its id, and what it counts for. `owner` as it is saved."""

    id: str
    kind: str
    owner: str
    entry: Any
    num_bytes: int


class PendingConversations:
    """Take `next_batch`, write it, and say that it is `written`, or put it `back`."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: dict[str, Waiting] = {}
        self._writing: dict[str, Waiting] = {}
        self._used: dict[str, None] = {}
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._writing)

    def __contains__(self, id: str) -> bool:
        return id in self._waiting or id in self._writing

    def get(self, id: str) -> Waiting | None:
        """The one of this id, if it waits or is being written."""
        return self._waiting.get(id) or self._writing.get(id)

    def is_being_written(self, id: str) -> bool:
        """Whether it is in the batch that was taken last."""
        return id in self._writing

    @property
    def has_any(self) -> bool:
        """Whether there is something to write."""
        return bool(self._waiting or self._used)

    def add(self, new: Waiting) -> int:
        """It is to be written; how many are given up for it, itself perhaps among them."""
        self.drop(new.id)
        self._waiting[new.id] = new
        self._num_bytes += new.num_bytes
        return self._make_room()

    def use(self, id: str) -> None:
        """It was used, which the store has to know, or it may delete it too early."""
        if id not in self and len(self._used) < MOST_USED:
            self._used[id] = None

    def drop(self, id: str) -> None:
        """It is not to be written any more, unless that goes on already."""
        self._used.pop(id, None)
        if (dropped := self._waiting.pop(id, None)) is not None:
            self._num_bytes -= dropped.num_bytes

    def next_batch(self) -> tuple[Sequence[Waiting], Sequence[str]]:
        """What to write now, the oldest first; and what was used."""
        num_bytes = 0
        for each in self._waiting.values():
            num_bytes += each.num_bytes
            is_full = num_bytes > MOST_BYTES_WRITTEN or len(self._writing) == MOST_WRITTEN
            if self._writing and is_full:
                break
            self._writing[each.id] = each
        for id in self._writing:
            self._num_bytes -= self._waiting.pop(id).num_bytes
        used, self._used = tuple(self._used), {}
        return tuple(self._writing.values()), used

    def written(self) -> None:
        """The batch is in the store, or can never be."""
        self._writing.clear()

    def back(self) -> int:
        """The batch could not be written now; how many are given up."""
        newer = [each for each in self._waiting.values() if each.id not in self._writing]
        self._waiting = {**self._writing, **{each.id: each for each in newer}}
        self._writing = {}
        self._num_bytes = sum(each.num_bytes for each in self._waiting.values())
        return self._make_room()

    def _make_room(self) -> int:
        num = 0
        while len(self._waiting) > MOST_WAITING or self._num_bytes > self._most_bytes:
            self.drop(next(iter(self._waiting)))
            num += 1
        return num

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if self._num_bytes != sum(each.num_bytes for each in self._waiting.values()):
            raise RuntimeError("the bytes do not add up")
        if len(self._waiting) > MOST_WAITING or self._num_bytes > self._most_bytes:
            raise RuntimeError("more waits than may")
