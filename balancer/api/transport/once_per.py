"""Rate limit that allows an event once per key and period, so that a log cannot be flooded.

Invariant: at most `max_keys` keys are stored, each for `seconds`.
"""

from collections.abc import Hashable

MAX_KEYS = 1024


class OncePer:
    """The remembered keys. Times are in seconds, on a clock that never goes back."""

    def __init__(self, seconds: float, *, max_keys: int = MAX_KEYS) -> None:
        self._seconds = seconds
        self._max_keys = max_keys
        self._last: dict[Hashable, float] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._last)

    def allows(self, key: Hashable, now: float) -> bool:
        """Return whether `key` is allowed now.

        While `max_keys` keys are stored, further keys are not allowed.
        """
        while self._last and now - self._last[oldest := next(iter(self._last))] >= self._seconds:
            del self._last[oldest]
        if key in self._last or len(self._last) >= self._max_keys:
            return False
        self._last[key] = now
        return True
