"""Sends the engine's statistics to balancers: at most once a second, and only if they changed.

Invariant: the timer runs only while the engine works, and after that until a check finds no
change.
"""

from collections.abc import Callable
from typing import Protocol

from ...shared.reports.statistics import Statistics

INTERVAL = 1.0
"""Minimum seconds between two reports."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None: ...


class Reporter:
    """`read` returns the statistics, `send` sends them; `call_later` is the event loop's."""

    def __init__(
        self,
        *,
        read: Callable[[], Statistics],
        send: Callable[[Statistics], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._read = read
        self._send = send
        self._call_later = call_later
        self._sent: Statistics | None = None
        self._timer: Timer | None = None

    def check(self) -> None:
        """Send the statistics if they changed."""
        present = self._read()
        is_new = present != self._sent
        if is_new:
            self._sent = present
            self._send(present)
        if is_new or present.num_running or present.num_waiting:
            self.stir()

    def stir(self) -> None:
        """Check within `INTERVAL`, because the engine works or has worked."""
        if self._timer is None:
            self._timer = self._call_later(INTERVAL, self._on_timer)

    def stop(self) -> None:
        """Check no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.check()
