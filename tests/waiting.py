"""How tests wait: for conditions, and for time that passes when they say so.

No outcome depends on how fast a machine is. What has to come is waited for, with a minute after
which a test that hangs ends; what has to come at a time, or must not, runs on `given_time`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

HANGS = 60.0
"""Seconds after which what has not come never will. They only end a test that hangs."""


async def until(condition: Callable[[], object]) -> None:
    """Returns when `condition` holds, also while the event loop's time stands still."""
    end = time.monotonic() + HANGS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"this did not come to hold within {HANGS:g} s")
        await asyncio.sleep(0)


def ticking(seconds: float = 0.001) -> Callable[[], float]:
    """A clock that is so much later at every look, however long that took."""
    looks = count()
    return lambda: next(looks) * seconds


class GivenTime:
    """The time of the running event loop, in seconds, for as long as a test gives it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = loop.time()

    def clock(self) -> float:
        """For what takes a clock."""
        return self.now

    async def passes(self, seconds: float) -> None:
        """Moves time on; returns when every timer that is due by then has been called."""
        self.now += seconds
        called = asyncio.Event()
        self._loop.call_at(self.now, called.set)
        await called.wait()

    async def passes_until(self, condition: Callable[[], object], *, step: float) -> None:
        """Moves time on by `step` again and again, with all that follows, until it holds."""
        end = time.monotonic() + HANGS
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"this did not come to hold, at whatever time, in {HANGS:g} s")
            await self.passes(step)


@asynccontextmanager
async def given_time() -> AsyncIterator[GivenTime]:
    """Inside, the event loop's time stands still unless the test moves it on.

    Sockets, processes and threads go on as ever. No timer comes by itself, so a wait with a
    deadline never ends early, however slow the machine, and whatever hangs is ended by the runner.
    Afterwards time goes on from where it is.
    """
    loop = asyncio.get_running_loop()
    real = loop.time
    given = GivenTime(loop)
    loop.time = given.clock  # type: ignore[method-assign]
    try:
        yield given
    finally:
        ahead = given.now - real()
        loop.time = lambda: real() + ahead  # type: ignore[method-assign]
