"""A timer that fires no later than the next deadline.

Invariant: while it runs, the event loop holds at most one of its handles.
"""

import asyncio
from collections.abc import Callable

_GRAIN = 0.001
"""Event loops round to milliseconds; a shorter timer would fire early, again and again."""


class DeadlineTimer:
    """Calls `fire` when the deadline has come that it was armed for."""

    def __init__(self, fire: Callable[[], None], clock: Callable[[], float]) -> None:
        self._fire = fire
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    async def run(self, deadline: float | None) -> None:
        """Keep `deadline` and those that `arm` is told of, until cancelled."""
        self._loop = asyncio.get_running_loop()
        self.arm(deadline)
        try:
            await asyncio.Event().wait()
        finally:
            self._loop = None
            self._disarm()

    def arm(self, deadline: float | None) -> None:
        """See to it that it fires no later than `deadline`; for nothing while it does not run."""
        if self._loop is None or deadline is None:
            return
        if self._handle is not None and self._at <= deadline:
            return
        self._disarm()
        delay = max(deadline - self._clock(), _GRAIN)
        self._handle = self._loop.call_later(delay, self._on_time)
        self._at = deadline

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_time(self) -> None:
        self._handle = None
        self._fire()
