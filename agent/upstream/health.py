"""Whether an upstream server is there, and when to check again.

While it is there it is checked every `INTERVAL`; while it is not, after pauses that double. One
check that only took too long does not count: a busy server may be slow. A server that answers
checks and refuses one request after the other is not there either. One that is full and asks for a
pause gets one; it is known as before when that is over.

Invariant: there is an issue exactly while it is not up.
"""

from ...shared.messages import Issue

INTERVAL = 10.0
FIRST_PAUSE = 0.5
LAST_PAUSE = 30.0
"""Seconds."""


LONGEST_REST = 60.0
"""Seconds that a server gets at most that asks for a pause; then it is tried again."""

MOST_REFUSED = 3
"""Requests that it may refuse in a row, while it serves no other."""


class Health:
    """Begins as not up, and due at once."""

    def __init__(self, now: float) -> None:
        self.issue: Issue | None = Issue(
            code="upstream_starting", message="the upstream server was not asked yet"
        )
        self.next_check = now
        self._pause = 0.0
        self._was_slow = False
        self._num_refused = 0
        self._rests_until = now
        self.was_away = True
        """Whether it was away since it was tried last, so that it may be another now."""

    @property
    def is_up(self) -> bool:
        """Whether requests may go to it."""
        return self.issue is None

    def answered(self, now: float) -> None:
        """It is there and can serve; one that rests goes on to do so."""
        if now < self._rests_until:
            self.next_check = self._rests_until
            return
        if not self.is_up:
            self._num_refused = 0
        self.was_away = False
        self.issue = None
        self._pause = 0.0
        self._was_slow = False
        self.next_check = now + INTERVAL

    def failed(self, issue: Issue, now: float, *, is_certain: bool) -> None:
        """A check of it failed. Not `is_certain`: it may only be slow."""
        if self.is_up and not is_certain and not self._was_slow:
            self._was_slow = True
            self.next_check = now + FIRST_PAUSE
            return
        self._pause = min(self._pause * 2 or FIRST_PAUSE, LAST_PAUSE)
        self.issue = issue
        self.was_away = True
        self.next_check = max(now + self._pause, self._rests_until)

    def rests(self, issue: Issue, seconds: float, now: float) -> None:
        """It asks for a pause. The requests that it has go on."""
        until = now + min(max(seconds, FIRST_PAUSE), LONGEST_REST)
        self._rests_until = max(self._rests_until, until)
        if self.is_up:
            self.issue, self.next_check = issue, self._rests_until
        self.next_check = max(self.next_check, self._rests_until)

    def served(self) -> None:
        """It took a request."""
        self._num_refused = 0

    def refused(self, issue: Issue, now: float) -> None:
        """It refused a request because of how it is."""
        if not self.is_up:
            return
        self._num_refused += 1
        if self._num_refused >= MOST_REFUSED:
            self.failed(issue, now, is_certain=True)

    def suspected(self, now: float) -> None:
        """A request could not reach it: check at once."""
        if self.is_up:
            self.next_check = now
