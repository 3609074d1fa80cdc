"""Heartbeats on one socket: when to send one, and when the peer counts as lost.

Every frame from the peer counts. A silence longer than the timeout is checked twice. If this
process itself did not run, the peer's frames wait to be read, and they are read before the second
check. Only a timer may check, because an event loop reads its sockets before it runs its timers.
Times are in seconds of the caller's clock.
"""

SECOND_LOOK = 0.1
"""Seconds between the two checks."""


class HeartbeatMonitor:
    """Decides when to send a heartbeat and whether the peer is lost.

    `interval` is the longest time without sending a frame. `timeout` is the longest time without a
    frame from the peer.
    """

    __slots__ = ("_heard_at", "_interval", "_lost_at", "_sent_at", "timeout")

    def __init__(self, now: float, *, interval: float, timeout: float) -> None:
        self.timeout = timeout
        self._interval = interval
        self._sent_at = self._heard_at = now
        self._lost_at: float | None = None

    def sent(self, now: float) -> None:
        """Note that a frame was sent."""
        self._sent_at = now

    def heard(self, now: float) -> None:
        """Note that the peer sent a frame."""
        self._heard_at = now
        self._lost_at = None

    def check(self, now: float) -> None:
        """Make the first check of the peer's silence; call it at `next_deadline`."""
        if self._lost_at is None and now >= self._heard_at + self.timeout:
            self._lost_at = now + SECOND_LOOK

    def is_due(self, now: float) -> bool:
        """Return whether it is time to send a heartbeat."""
        return now >= self._sent_at + self._interval

    def is_lost(self, now: float) -> bool:
        """Return whether the peer was silent for too long at both checks."""
        return self._lost_at is not None and now >= self._lost_at

    def next_deadline(self) -> float:
        """Return the time of the next check or heartbeat."""
        silent_at = self._heard_at + self.timeout if self._lost_at is None else self._lost_at
        return min(self._sent_at + self._interval, silent_at)
