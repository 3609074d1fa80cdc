"""The timer: for the nearest deadline, once, and for nothing while it does not run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from arriero.balancer.fleet.runtime.deadline_timer import DeadlineTimer
from tests.waiting import GivenTime, given_time

SOON = 1.0
LATER = 60.0


class Fired:
    """What the timer calls, by the event loop's own clock."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self) -> None:
        self.times.append(now())


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def time() -> AsyncIterator[GivenTime]:
    async with given_time() as time:
        yield time


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


async def test_it_fires_when_the_deadline_has_come_and_not_before(time: GivenTime) -> None:
    fired, deadline = Fired(), now() + SOON
    async with running(DeadlineTimer(fired, now), deadline):
        await time.passes(0.9 * SOON)
        assert fired.times == []
        await time.passes(0.1 * SOON)
        await time.passes(LATER)
    assert fired.times == [pytest.approx(deadline)]


async def test_a_nearer_deadline_brings_it_forward(time: GivenTime) -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() + LATER):
        timer.arm(now() + SOON)
        await time.passes(SOON)
    assert len(fired.times) == 1


async def test_a_later_deadline_and_none_leave_it_as_it_is(time: GivenTime) -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() + SOON):
        timer.arm(now() + LATER)
        timer.arm(None)
        await time.passes(SOON)
    assert len(fired.times) == 1


async def test_after_it_has_fired_it_is_armed_anew(time: GivenTime) -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() - 1.0):
        await time.passes(SOON)
        assert len(fired.times) == 1
        timer.arm(now() + SOON)
        await time.passes(SOON)
    assert len(fired.times) == 2


async def test_nothing_fires_before_it_runs_or_after(time: GivenTime) -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    timer.arm(now() - 1.0)
    async with running(timer, now() + SOON):
        pass
    timer.arm(now() - 1.0)
    await time.passes(LATER)
    assert fired.times == []
