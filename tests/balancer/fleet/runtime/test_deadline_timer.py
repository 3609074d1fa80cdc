"""The timer: for the nearest deadline, once, and for nothing while it does not run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from arriero.balancer.fleet.runtime.deadline_timer import DeadlineTimer

LATER = 60.0
SOON = 0.01


class Fired(asyncio.Event):
    """What the timer calls, by the event loop's own clock."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def __call__(self) -> None:
        self.times.append(now())
        self.set()


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def running(timer: DeadlineTimer, deadline: float | None) -> AsyncIterator[None]:
    task = asyncio.create_task(timer.run(deadline))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_it_fires_when_the_deadline_has_come_and_not_before() -> None:
    fired, deadline = Fired(), now() + SOON
    async with running(DeadlineTimer(fired, now), deadline):
        await asyncio.wait_for(fired.wait(), 5)
    assert fired.times[0] >= deadline
    assert len(fired.times) == 1


async def test_a_nearer_deadline_brings_it_forward() -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() + LATER):
        timer.arm(now() + SOON)
        await asyncio.wait_for(fired.wait(), 5)


async def test_a_later_deadline_and_none_leave_it_as_it_is() -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() + SOON):
        timer.arm(now() + LATER)
        timer.arm(None)
        await asyncio.wait_for(fired.wait(), 5)


async def test_after_it_has_fired_it_is_armed_anew() -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() - 1.0):
        await asyncio.wait_for(fired.wait(), 5)
        fired.clear()
        timer.arm(now() + SOON)
        await asyncio.wait_for(fired.wait(), 5)
    assert len(fired.times) == 2


async def test_nothing_fires_before_it_runs_or_after() -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    timer.arm(now() - 1.0)
    async with running(timer, now() + SOON):
        pass
    timer.arm(now() - 1.0)
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(2 * SOON, passed.set)
    await passed.wait()
    assert fired.times == []
