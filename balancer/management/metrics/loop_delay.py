"""Measures how late the event loop runs due callbacks. This delay affects every request."""

import asyncio
from collections.abc import Callable

from .gap_histogram import GapHistogram

INTERVAL = 0.25
"""Seconds between two measurements."""

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class LoopDelay:
    """Schedules a call after each `INTERVAL`, and observes how late the call is."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.histogram = GapHistogram(
            "arriero_event_loop_delay_seconds",
            f"How late the event loop runs what is due, looked at every {INTERVAL} s.",
            BOUNDS,
        )
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, on the running loop."""
        loop = asyncio.get_running_loop()
        now = self._clock or loop.time

        def measure(due: float) -> None:
            self.histogram.observe((max(0.0, now() - due),))
            arm()

        def arm() -> None:
            self._timer = loop.call_later(INTERVAL, measure, now() + INTERVAL)

        arm()

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
