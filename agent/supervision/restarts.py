"""Restart policy of the engine process: whether to restart, after which pause, with which issue.

Pauses double with each failure. Failures are forgotten once the model has been loaded for
`STEADY_PAUSES` times the last pause.

Invariant: there is an issue exactly as long as failures are remembered.
"""

import signal
from dataclasses import dataclass

from ...shared.messages import Issue
from ...shared.quantities import format_duration
from .stall_watch import STALLED

FIRST_PAUSE = 0.5
LAST_PAUSE = 30.0
STEADY_PAUSES = 20
"""Failures are forgotten after this many times the last pause: 10 seconds to 10 minutes."""

ISSUE_CODE = "engine_crashed"

_STOPPED_BY = {-signal.SIGTERM, -signal.SIGINT}
_HINTS = {signal.SIGKILL: "the system may be short of memory"}


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the process again after `pause` seconds."""

    pause: float


@dataclass(frozen=True, slots=True)
class Quit:
    """End with this exit code. `complaint` is an error that was not logged yet."""

    code: int
    complaint: str | None = None


class Restarts:
    """Counts the failures of an agent's engine processes."""

    def __init__(self, *, first_pause: float = FIRST_PAUSE, last_pause: float = LAST_PAUSE) -> None:
        """Start without failures. Both pauses are in seconds."""
        self._first_pause = first_pause
        self._last_pause = last_pause
        self._was_ready = False
        self._is_loaded = False
        self._num_failures = 0
        self._pause = 0.0
        self._cause = ""
        self._code = ISSUE_CODE
        self._steady_at: float | None = None

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The issues for balancers."""
        if self._num_failures == 0:
            return ()
        times = f"{self._num_failures} times in a row"
        count = f" ({times})" if self._num_failures > 1 else ""
        then = (
            "it was started again"
            if self._is_loaded
            else f"it starts again after a pause of {format_duration(self._pause)}"
        )
        return (Issue(code=self._code, message=f"the engine process {self._cause}{count}; {then}"),)

    def loaded(self, now: float) -> None:
        """Note that the process has loaded its model. `issues` may have changed."""
        self._is_loaded = True
        if self._num_failures:
            self._steady_at = now + STEADY_PAUSES * self._pause

    def ready(self) -> bool:
        """Note that a balancer accepted the process; return if it is the agent's first time."""
        is_news, self._was_ready = not self._was_ready, True
        return is_news

    def ended(
        self, code: int, reason: str | None, *, is_stopping: bool, has_stalled: bool = False
    ) -> Restart | Quit:
        """Handle the end of a process by signal `-code` or with exit code `code`.

        `reason` is the process's last report. `has_stalled`: the process was ended because it
        stalled. It is not restarted if it was asked to stop, or if it exited by itself before it
        was ever ready.
        """
        self._is_loaded = False
        self._steady_at = None
        if is_stopping:
            return _stopped(code, reason)
        if code == 0 or (code > 0 and not self._was_ready):
            return Quit(code)
        self._num_failures += 1
        self._pause = min(self._pause * 2 or self._first_pause, self._last_pause)
        self._cause = cause(code, reason)
        self._code = STALLED if has_stalled else ISSUE_CODE
        return Restart(self._pause)

    def next_deadline(self) -> float | None:
        """Return the time at which to call `tick`; `None` if there is no deadline."""
        return self._steady_at

    def tick(self, now: float) -> None:
        """Forget failures if their time is over. `issues` may have changed."""
        if self._steady_at is not None and now >= self._steady_at:
            self._steady_at = None
            self._num_failures = 0
            self._pause = 0.0

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        if bool(self._num_failures) != bool(self._pause):
            raise RuntimeError("failures without a pause, or the other way round")
        if self._steady_at is not None and not (self._is_loaded and self._num_failures):
            raise RuntimeError("nothing can become steady")
        if self._is_loaded and self._num_failures and self._steady_at is None:
            raise RuntimeError("failures would never be forgotten")


def _stopped(code: int, reason: str | None) -> Quit:
    """Return the verdict on a stopped process.

    A signal to the whole service may end the process before it reads its orders, which counts as a
    stop.
    """
    if code in _STOPPED_BY:
        return Quit(0)
    if code < 0:
        return Quit(128 - code, f"while stopping, the engine process {cause(code, reason)}")
    return Quit(code)


def cause(code: int, reason: str | None) -> str:
    """Describe how a process ended, as the end of a sentence about it."""
    if code >= 0:
        return f"ended with exit code {code}" + (f": {reason}" if reason else "")
    return f"was ended by {_signal_name(-code)}" + (f": {reason}" if reason else _hint(-code))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _hint(number: int) -> str:
    hint = next((text for known, text in _HINTS.items() if known == number), None)
    return f" ({hint})" if hint else ""
