"""Signs of life on one socket: when to give one, and when to take the other side for lost.

Any message counts. A silence that has lasted too long is looked at twice: if it was us who were
held up, what they said is there to be read, and will be by the second time. Times are in seconds
by whatever clock the caller reads.
"""

SECOND_LOOK = 0.1
"""Seconds between the two; an event loop that was held up has read by then what was waiting."""


class HeartbeatMonitor:
    """`interval`: longest silence of ours; `timeout`: longest silence of theirs."""

    __slots__ = ("_heard_at", "_interval", "_lost_at", "_sent_at", "timeout")

    def __init__(self, now: float, *, interval: float, timeout: float) -> None:
        self.timeout = timeout
        self._interval = interval
        self._sent_at = self._heard_at = now
        self._lost_at: float | None = None

    def sent(self, now: float) -> None:
        """We said something."""
        self._sent_at = now

    def heard(self, now: float) -> None:
        """They said something."""
        self._heard_at = now
        self._lost_at = None

    def look(self, now: float) -> None:
        """Note it if they were silent for too long; to be called at `next_deadline`."""
        if self._lost_at is None and now >= self._heard_at + self.timeout:
            self._lost_at = now + SECOND_LOOK

    def is_due(self, now: float) -> bool:
        """Whether it is time to say something."""
        return now >= self._sent_at + self._interval

    def is_lost(self, now: float) -> bool:
        """Whether they were silent for too long, and still are."""
        return self._lost_at is not None and now >= self._lost_at

    def next_deadline(self) -> float:
        """When to look again."""
        silent_at = self._heard_at + self.timeout if self._lost_at is None else self._lost_at
        return min(self._sent_at + self._interval, silent_at)
