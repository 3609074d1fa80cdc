"""Deadlines that may move to a later time at no cost.

An item is armed for a time that is not later than its deadline. At this time the item's deadline
is read again. If the deadline has moved, the item is armed again.

Invariant: the heap has one entry for each armed item, and at most about as many outdated entries.
"""

import heapq
from itertools import count
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """An object with a deadline, and the time for which it is armed."""

    armed_at: float | None

    @property
    def deadline(self) -> float:
        """The present deadline."""


T = TypeVar("T", bound=Timed)

_SLACK = 64


def earliest(*times: float | None) -> float | None:
    """Return the earliest of `times`, or `None` if all are `None`.

    The core calls this function for every event, so it must be fast.
    """
    first = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first


class Deadlines(Generic[T]):
    """The armed items. An item may be in only one such collection."""

    __slots__ = ("_heap", "_num_armed", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._num_armed = 0
        self._numbers = count()

    def arm(self, item: T) -> None:
        """Arm an item that is new, or whose deadline may now be earlier."""
        deadline, armed_at = item.deadline, item.armed_at
        if armed_at is not None and armed_at <= deadline:
            return
        self._num_armed += armed_at is None
        item.armed_at = deadline
        heapq.heappush(self._heap, (deadline, next(self._numbers), item))
        self._compact()

    def disarm(self, item: T) -> None:
        """Remove an item that no longer has a deadline."""
        if item.armed_at is not None:
            item.armed_at = None
            self._num_armed -= 1
            self._compact()

    def next(self) -> float | None:
        """Return a time no later than the earliest deadline."""
        heap = self._heap
        while heap:
            if heap[0][2].armed_at == heap[0][0]:
                return heap[0][0]
            heapq.heappop(heap)
        return None

    def due(self, now: float, most: int | None = None) -> list[T]:
        """Remove and return at most `most` items whose deadline has come, earliest first."""
        items: list[T] = []
        while len(items) != most and (first := self.next()) is not None and first <= now:
            item = heapq.heappop(self._heap)[2]
            item.armed_at = None
            self._num_armed -= 1
            if item.deadline > now:
                self.arm(item)
            else:
                items.append(item)
        return items

    def _compact(self) -> None:
        if len(self._heap) > 2 * self._num_armed + _SLACK:
            current = {id(each[2]): each for each in self._heap if each[0] == each[2].armed_at}
            self._heap = list(current.values())
            heapq.heapify(self._heap)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an item is armed later than its deadline; for tests."""
        armed = {id(item) for time, _, item in self._heap if time == item.armed_at}
        if len(armed) != self._num_armed or len(self._heap) > 2 * len(armed) + _SLACK:
            raise RuntimeError(f"{len(self._heap)} entries for {self._num_armed} items")
        for time, _, item in self._heap:
            if time == item.armed_at and time > item.deadline:
                raise RuntimeError(f"{item} is armed too late")
