"""Counts of prefix transfers. Thread-safe."""

import threading
from dataclasses import replace

from ...shared.reports.statistics import Fetches


class Counts:
    """Counts since the engine process started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = Fetches()

    @property
    def total(self) -> Fetches:
        """The counts so far."""
        return self._total

    def fetched(self, *, tokens: int, num_bytes: int, seconds: float) -> None:
        """Count a prefix received from another agent."""
        with self._lock:
            total = self._total
            self._total = replace(
                total,
                num=total.num + 1,
                tokens=total.tokens + tokens,
                bytes=total.bytes + num_bytes,
                seconds=total.seconds + seconds,
            )

    def failed(self) -> None:
        """Count a prefix that could not be received."""
        with self._lock:
            self._total = replace(self._total, failed=self._total.failed + 1)

    def lent(self) -> None:
        """Count a prefix sent to another agent."""
        with self._lock:
            self._total = replace(self._total, lent=self._total.lent + 1)
