"""Deadlines that move at every token and cost nothing when they move later.

Each key is armed for a time that is not later than its deadline. When that time comes, the current
deadline is read, and a key whose deadline has moved is armed again.
"""

from collections.abc import Callable
from typing import Generic

from .priority_queue import K, PriorityQueue


def earliest(*times: float | None) -> float | None:
    """The first of these times, if there is any. Asked for with every event, so it is quick."""
    first = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first


class Deadlines(Generic[K]):
    """`deadline_of` gives a key's deadline as it is now, in the seconds of `now`."""

    __slots__ = ("_armed", "_deadline_of")

    def __init__(self, deadline_of: Callable[[K], float]) -> None:
        self._deadline_of = deadline_of
        self._armed: PriorityQueue[K, float] = PriorityQueue()

    def __contains__(self, key: object) -> bool:
        return key in self._armed

    def arm(self, key: K) -> None:
        """The key is new, or its deadline may have come nearer."""
        deadline = self._deadline_of(key)
        armed = self._armed.get(key)
        if armed is None or deadline < armed:
            self._armed.set(key, deadline)

    def disarm(self, key: K) -> None:
        """The key has no deadline any more, if it had one."""
        if key in self._armed:
            self._armed.remove(key)

    def next(self) -> float | None:
        """A time not later than the earliest deadline."""
        first = self._armed.first()
        return first[0] if first is not None else None

    def due(self, now: float) -> list[K]:
        """Take out those whose deadline has come, earliest first."""
        keys = self._armed.pop_until(now)
        for key in keys:
            if self._deadline_of(key) > now:
                self.arm(key)
        return [key for key in keys if key not in self._armed]

    def check_integrity(self) -> None:
        """For tests: raise if a key is armed later than its deadline."""
        self._armed.check_integrity()
        for key in self._armed:
            armed = self._armed.get(key)
            if armed is None or armed > self._deadline_of(key):
                raise RuntimeError(f"{key} is armed too late")
