"""Signs of life on one socket: when to give one, and when to take the other side for lost.

Any message counts. Times are in seconds by whatever clock the caller reads.
"""


class Pulse:
    """`interval`: longest silence of ours; `timeout`: longest silence of theirs."""

    def __init__(self, now: float, *, interval: float, timeout: float) -> None:
        self.timeout = timeout
        self._interval = interval
        self._sent = self._heard = now

    def sent(self, now: float) -> None:
        """We said something."""
        self._sent = now

    def heard(self, now: float) -> None:
        """They said something."""
        self._heard = now

    def is_due(self, now: float) -> bool:
        """Whether it is time to say something."""
        return now >= self._sent + self._interval

    def is_lost(self, now: float) -> bool:
        """Whether they were silent for too long."""
        return now >= self._heard + self.timeout

    def next_deadline(self) -> float:
        """When to look again."""
        return min(self._sent + self._interval, self._heard + self.timeout)
