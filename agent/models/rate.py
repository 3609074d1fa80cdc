"""How fast a download is, and how long it will still take."""

from collections import deque

from ...shared.inference.values import MOST_SECONDS
from ...shared.models.assignments import MAX_SPEED, Download

WINDOW = 10.0
"""Seconds over which the rate is measured."""


class RateMeter:
    """Turns counts of bytes into `Download`s with a rate, once there are two counts."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def measure(self, now: float, file: str, size: int, total: int | None) -> Download:
        """`size` bytes are here at `now`, of `total`."""
        if self._counts and size < self._counts[-1][1]:
            self._counts.clear()
        self._counts.append((now, size))
        while now - self._counts[0][0] > WINDOW and len(self._counts) > 2:
            self._counts.popleft()
        rate = self._rate()
        left = None if total is None or not rate else max(total - size, 0) / rate
        left = None if left is None else min(left, MOST_SECONDS)
        return Download(
            file=file, bytes=size, total=total, bytes_per_second=rate, seconds_left=left
        )

    def _rate(self) -> float | None:
        (first, before), (last, after) = self._counts[0], self._counts[-1]
        return min((after - before) / (last - first), MAX_SPEED) if last > first else None
