"""Decides if an upstream server is up, and when to check it again.

A server that is up is checked every `INTERVAL`. A server that is down is checked after pauses that
double. A single slow check does not count: a busy server may be slow. A server that answers checks
but refuses several requests in a row is down too. If a full server asks for a pause, it gets the
pause and is up again afterwards.

Invariant: there is an issue exactly while the server is not up.
"""

from ...shared.messages import Issue

INTERVAL = 10.0
FIRST_PAUSE = 0.5
LAST_PAUSE = 30.0
"""Maximum pause between checks, in seconds."""


LONGEST_REST = 60.0
"""Maximum pause in seconds that a server can ask for. After the pause, requests are sent again."""

MOST_REFUSED = 3
"""Maximum requests refused in a row while the server serves no other request."""


class Health:
    """The state of one server. It begins as not up, with a check due at once."""

    def __init__(self, now: float) -> None:
        self.issue: Issue | None = Issue(
            code="upstream_starting", message="the upstream server was not checked yet"
        )
        self.next_check = now
        self._pause = 0.0
        self._was_slow = False
        self._num_refused = 0
        self._rests_until = now
        self.was_away = True
        """True if the server was away since it was last tried, so it may be another server now."""

    @property
    def is_up(self) -> bool:
        """Return whether requests may go to the server."""
        return self.issue is None

    def answered(self, now: float) -> None:
        """Note a successful check. If the server asked for a pause, the pause continues."""
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
        """Note a failed check. If not `is_certain`, the server may only be slow."""
        if self.is_up and not is_certain and not self._was_slow:
            self._was_slow = True
            self.next_check = now + FIRST_PAUSE
            return
        self._pause = min(self._pause * 2 or FIRST_PAUSE, LAST_PAUSE)
        self.issue = issue
        self.was_away = True
        self.next_check = max(now + self._pause, self._rests_until)

    def rests(self, issue: Issue, seconds: float, now: float) -> None:
        """Pause new requests for `seconds`, as the server asked. Running requests continue."""
        until = now + min(max(seconds, FIRST_PAUSE), LONGEST_REST)
        self._rests_until = max(self._rests_until, until)
        if self.is_up:
            self.issue, self.next_check = issue, self._rests_until
        self.next_check = max(self.next_check, self._rests_until)

    def served(self) -> None:
        """Note that the server accepted a request."""
        self._num_refused = 0

    def refused(self, issue: Issue, now: float) -> None:
        """Note that the server refused a request for reasons of its own."""
        if not self.is_up:
            return
        self._num_refused += 1
        if self._num_refused >= MOST_REFUSED:
            self.failed(issue, now, is_certain=True)

    def suspected(self, now: float) -> None:
        """Make a check due at once, because a request could not reach the server."""
        if self.is_up:
            self.next_check = now
