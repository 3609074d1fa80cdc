"""The bystander itself: it sees what happens to its stream."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import (
    ALLOWANCE,
    NUM_TRIES,
    Bystander,
    Pauses,
    bystander,
    unnoticed,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

STALL = 2 * ALLOWANCE


async def test_a_stream_that_nobody_disturbs(long_fleet: Fleet) -> None:
    async def attack(seen: Bystander) -> None:
        await seen.until_more(20)

    await unnoticed(long_fleet, attack)


async def test_a_stream_that_ends_is_seen(long_fleet: Fleet) -> None:
    with pytest.raises(AssertionError, match="the bystander's stream ended"):
        async with bystander(long_fleet) as seen:
            [request] = await long_fleet.view("requests")
            path = f"{long_fleet.management}/api/v1/requests/{request['id']}"
            async with long_fleet.http.delete(path) as response:
                assert response.ok
            await seen.until_ended()  # events may be on their way still


async def test_a_balancer_that_stands_still_is_seen(long_fleet: Fleet) -> None:
    async def stop_for_a_while() -> None:
        long_fleet.balancer.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(STALL)  # the stall that this test makes
        finally:
            long_fleet.balancer.signal(signal.SIGCONT)

    async with bystander(long_fleet) as seen:
        assert await seen.longest_pause(stop_for_a_while()) > ALLOWANCE


class Scripted:
    """A stream with a given clock; `pausing(…)` is a load that pauses it for as long as it says."""

    def __init__(self, busyness: float = 1.0) -> None:
        self._now = 0.0
        self.num_loads = 0

        async def busy() -> float:
            return busyness

        self.seen = Bystander(clock=lambda: self._now, busyness=busy)
        self.come(1.0)

    def come(self, pause: float) -> None:
        """A pause, and then more events than any wait is for."""
        self._now += pause
        for _ in range(50):
            self.seen.take({"event": "token"})

    def pausing(self, *pauses: float) -> Callable[[Bystander], Coroutine[Any, Any, None]]:
        """Each time it is done the next pause."""
        left = iter(pauses)

        async def load(seen: Bystander) -> None:
            self.num_loads += 1
            asyncio.get_running_loop().call_soon(self.come, 0.0)  # what comes afterwards
            self.come(next(left))

        return load


async def test_a_pause_that_comes_each_time_is_noticed() -> None:
    stream = Scripted()
    noticed = await stream.seen.compare(
        stream.pausing(1.0, 3.0, 1.5), stream.pausing(0.25, 1.25, 0.5)
    )
    assert noticed == [Pauses(1.0, 0.25), Pauses(3.0, 1.25), Pauses(1.5, 0.5)]
    assert stream.num_loads == 2 * NUM_TRIES


async def test_a_pause_that_came_by_chance_is_not() -> None:
    stream = Scripted()
    assert await stream.seen.compare(stream.pausing(5.0, 0.25), stream.pausing(0.0)) == []


async def test_a_pause_that_is_there_without_the_attack_is_not() -> None:
    stream = Scripted()
    assert await stream.seen.compare(stream.pausing(5.0), stream.pausing(2.5)) == []


async def test_a_busy_machine_takes_longer_for_as_much_computing() -> None:
    stream = Scripted(busyness=4.0)
    assert await stream.seen.compare(stream.pausing(4 * ALLOWANCE), stream.pausing(0.25)) == []
    pause = 4 * ALLOWANCE + 1.0
    stream = Scripted(busyness=4.0)
    noticed = await stream.seen.compare(stream.pausing(*[pause] * 3), stream.pausing(*[0.25] * 3))
    assert noticed == NUM_TRIES * [Pauses(pause, 0.25)]


async def test_an_ended_stream_is_no_comparison() -> None:
    stream = Scripted()

    async def attack(seen: Bystander) -> None:
        seen.take({"event": "error"})

    with pytest.raises(AssertionError, match="the bystander's stream ended"):
        await stream.seen.compare(attack)
