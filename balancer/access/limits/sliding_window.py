"""The amounts of the last minute, added up.

Invariant: `used` is never less than what was added within the last `SPAN` seconds. It may hold an
amount for `GRAIN` seconds longer, so that no more than `SPAN / GRAIN` entries are kept.
"""

from collections import deque
from dataclasses import dataclass

SPAN = 60.0
"""Seconds of the window."""

GRAIN = 0.1
"""Seconds whose amounts are one entry, which leaves the window with the last of them."""


@dataclass(slots=True)
class _Entry:
    first: float
    last: float
    amount: int


class SlidingWindow:
    """Times never go back."""

    __slots__ = ("_entries", "_sum")

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._sum = 0

    def __len__(self) -> int:
        """How many entries it keeps."""
        return len(self._entries)

    def add(self, amount: int, now: float) -> None:
        """`amount` was used at `now`."""
        self._forget(now)
        if amount == 0:
            return
        self._sum += amount
        if self._entries and now - self._entries[-1].first < GRAIN:
            self._entries[-1].last = now
            self._entries[-1].amount += amount
        else:
            self._entries.append(_Entry(now, now, amount))

    def used(self, now: float) -> int:
        """The sum of the window that ends at `now`."""
        self._forget(now)
        return self._sum

    def seconds_until(self, most: int, now: float) -> float:
        """Until no more than `most`, which is not negative, are in the window."""
        left = self.used(now)
        frees_at = now
        for entry in self._entries:
            if left <= most:
                break
            left -= entry.amount
            frees_at = entry.last + SPAN
        return frees_at - now

    def seconds_until_empty(self, now: float) -> float:
        """Until nothing is in the window."""
        return self.seconds_until(0, now)

    def _forget(self, now: float) -> None:
        while self._entries and self._entries[0].last + SPAN <= now:
            self._sum -= self._entries.popleft().amount
