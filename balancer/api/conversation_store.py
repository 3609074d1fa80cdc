"""Stored conversations, which later requests can continue or read.

The store is bounded in entries, bytes and age. A full store evicts the least recently used entry
of the owner with most bytes. An entry larger than its owner's fair share is refused. Entries do
not depend on each other: data that several share is counted for each, so the bytes are an upper
bound. The APIs use one store, and each finds only entries of its own kind.

Without keys, all entries belong to one owner, who has the whole store.

Invariants: the entries are in the order of their last use; `pool` has the same entries.
"""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

from ..fleet.shares import EVERYBODY, FairEviction

MAX_ENTRIES = 10_000
"""Maximum entries that are stored, however small they are."""

DEFAULT_BYTES = 64 * 2**20
DEFAULT_AGE = 3600.0


class Entry(Protocol):
    """A stored conversation."""

    @property
    def num_bytes(self) -> int:
        """The bytes that the entry counts for."""


E = TypeVar("E", bound=Entry)


@dataclass(slots=True)
class _Used:
    entry: Entry
    used_at: float
    owner: str | None
    is_shared: bool


class ConversationStore:
    """The store in memory. `now` is in seconds of one clock that never goes back."""

    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_age: float = DEFAULT_AGE,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        """Make an empty store. With 0 `max_bytes` no conversation is stored.

        `max_age` is in seconds and counts from an entry's last use.
        """
        self.max_bytes = max_bytes
        self._max_age = max_age
        self._entries: OrderedDict[str, _Used] = OrderedDict()
        self.pool: FairEviction[str, str] = FairEviction(max_bytes, max_entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def num_bytes(self) -> int:
        """The bytes that all entries count for."""
        return self.pool.sizes.total

    def put(
        self,
        id: str,
        entry: Entry,
        now: float,
        *,
        owner: str | None = None,
        is_shared: bool = False,
    ) -> bool:
        """Store `entry`, if it is within its owner's fair share, and evict older entries.

        Returns whether it was stored.

        The entry belongs to `owner` (`Caller.owner`); no other owner finds it. It replaces an
        entry with the same id. `is_shared`: a store of several balancers has the entry, too.
        """
        if not self.pool.claim(id, owner or EVERYBODY, entry.num_bytes):
            return False
        self._entries[id] = _Used(entry, now, owner, is_shared)
        self._entries.move_to_end(id)
        self._make_room(now)
        return True

    def find(self, id: str, kind: type[E], now: float, *, owner: str | None = None) -> E | None:
        """Return the entry with this id if its kind and owner match, and mark it as used."""
        self._make_room(now)
        used = self._entries.get(id)
        if used is None or used.owner != owner or not isinstance(used.entry, kind):
            return None
        used.used_at = now
        self._entries.move_to_end(id)
        self.pool.use(id)
        return used.entry

    def forget(self, id: str, kind: type[Entry], now: float, *, owner: str | None = None) -> bool:
        """Delete the entry with this id if its kind and owner match.

        Returns whether it was deleted.
        """
        self._make_room(now)
        used = self._entries.get(id)
        if used is None or used.owner != owner or not isinstance(used.entry, kind):
            return False
        self._remove(id)
        return True

    def is_shared(self, id: str) -> bool:
        """Return whether the entry is also in a store that several balancers share."""
        return id in self._entries and self._entries[id].is_shared

    def drop(self, id: str) -> None:
        """Delete the entry with this id, if present. The owner is not checked."""
        if id in self._entries:
            self._remove(id)

    def _make_room(self, now: float) -> None:
        while self._entries:
            id, eldest = next(iter(self._entries.items()))
            if now - eldest.used_at <= self._max_age:
                break
            self._remove(id)
        while (gone := self.pool.evict()) is not None:
            del self._entries[gone]

    def _remove(self, id: str) -> None:
        del self._entries[id]
        self.pool.remove(id)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        entries = list(self._entries.values())
        self.pool.check_integrity()
        if self.num_bytes != sum(each.entry.num_bytes for each in entries):
            raise RuntimeError("the bytes do not add up")
        if self.num_bytes > self.max_bytes or len(entries) > self.pool.counts.bound:
            raise RuntimeError("more is kept than may be")
        if any(a.used_at > b.used_at for a, b in pairwise(entries)):
            raise RuntimeError("the entries are out of order")
