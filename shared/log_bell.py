"""Wakes an event loop after a line was logged on any thread.

Several lines before the wake-up cause one wake-up.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from . import log


class LogBell:
    """Calls `on_lines` on the event loop's thread, unless `is_heard` returns false."""

    def __init__(
        self, on_lines: Callable[[], None], is_heard: Callable[[], bool] = lambda: True
    ) -> None:
        """Start to listen for lines until `close`. Needs the event loop."""
        self._loop = asyncio.get_running_loop()
        self._on_lines = on_lines
        self._is_heard = is_heard
        self._is_rung = False
        self._forget = log.listen(self._ring)

    def close(self) -> None:
        """Stop calling `on_lines`."""
        self._forget()
        self._is_heard = lambda: False

    def _ring(self) -> None:
        if self._is_rung or not self._is_heard():
            return
        self._is_rung = True
        with suppress(RuntimeError):  # the loop is closed: the program ends
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_rung = False
        if self._is_heard():
            self._on_lines()
