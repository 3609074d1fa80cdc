"""A priority queue with ranks that may change: a heap that skips outdated entries.

Invariants: each key has at most one rank. The heap has an entry for each rank, and at most about
as many outdated entries. No group is empty.
"""

import heapq
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

G = TypeVar("G", bound=Hashable)
K = TypeVar("K", bound="Ordered")
R = TypeVar("R", float, tuple[float, int])

_SLACK = 64


class Ordered(Hashable, Protocol):
    """A key that can be sorted."""

    def __lt__(self, other: Any, /) -> bool:
        """Return whether this key comes before the other."""


class PriorityQueue(Generic[K, R]):
    """Keys sorted by rank, and by key among equal ranks. A change costs amortised O(log n)."""

    __slots__ = ("_heap", "_ranks")

    def __init__(self) -> None:
        self._ranks: dict[K, R] = {}
        self._heap: list[tuple[R, K]] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, key: object) -> bool:
        return key in self._ranks

    def __iter__(self) -> Iterator[K]:
        """The keys, in no order."""
        return iter(self._ranks)

    def get(self, key: K) -> R | None:
        """Return the rank of `key`, if it has one."""
        return self._ranks.get(key)

    def set(self, key: K, rank: R) -> None:
        """Set the rank of `key`."""
        if self._ranks.get(key) != rank:
            self._ranks[key] = rank
            heapq.heappush(self._heap, (rank, key))
            self._compact()

    def remove(self, key: K) -> None:
        """Remove `key`. Raises `KeyError` if `key` has no rank."""
        del self._ranks[key]
        self._compact()

    def first(self) -> tuple[R, K] | None:
        """Return the lowest rank and its key, or `None` if the queue is empty."""
        while self._heap:
            rank, key = entry = self._heap[0]
            if self._ranks.get(key) == rank:
                return entry
            heapq.heappop(self._heap)
        return None

    def pop_until(self, rank: R) -> list[K]:
        """Remove and return all keys with ranks up to `rank`, lowest rank first."""
        keys: list[K] = []
        while (entry := self.first()) is not None and entry[0] <= rank:
            del self._ranks[entry[1]]
            keys.append(entry[1])
        return keys

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        entries = {(rank, key) for rank, key in self._heap}
        missing = {(rank, key) for key, rank in self._ranks.items()} - entries
        if missing or len(self._heap) > 2 * len(self._ranks) + _SLACK:
            raise RuntimeError(f"{len(self._heap)} entries, missing {missing}")

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._ranks) + _SLACK:
            self._heap = [(rank, key) for key, rank in self._ranks.items()]
            heapq.heapify(self._heap)


class Groups(Generic[G, K, R]):
    """A priority queue for each group. A group without keys does not exist."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[G, PriorityQueue[K, R]] = {}

    def __len__(self) -> int:
        """The number of groups."""
        return len(self._queues)

    def __iter__(self) -> Iterator[G]:
        """The groups, in no order."""
        return iter(self._queues)

    def keys(self, group: G) -> Iterable[K]:
        """The keys of a group, in no order."""
        return self._queues.get(group, ())

    def size(self, group: G) -> int:
        """The number of keys in a group."""
        queue = self._queues.get(group)
        return 0 if queue is None else len(queue)

    def set(self, group: G, key: K, rank: R) -> None:
        """Set the rank of `key` in a group."""
        queue = self._queues.get(group)
        if queue is None:
            queue = self._queues[group] = PriorityQueue()
        queue.set(key, rank)

    def remove(self, group: G, key: K) -> None:
        """Remove `key` from a group. Raises `KeyError` if the group does not have `key`."""
        queue = self._queues[group]
        queue.remove(key)
        if not queue:
            del self._queues[group]

    def first(self, group: G) -> tuple[R, K] | None:
        """Return the lowest rank of a group and its key, or `None` if the group has no keys."""
        queue = self._queues.get(group)
        return queue.first() if queue is not None else None

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        for group, queue in self._queues.items():
            queue.check_integrity()
            if not queue:
                raise RuntimeError(f"the group {group} is empty")
