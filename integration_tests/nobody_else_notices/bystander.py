"""A well-behaved stream beside a hostile request: it must neither end nor stall.

What can be done again is given to `unnoticed`, which also judges how long the stream stood still:

    async def attack(seen: Bystander) -> None:
        ...  # what is hostile; `seen` is the stream so far

    await unnoticed(fleet, attack)

A machine that is slow or busy pauses every stream, so no number of seconds is too many by itself.
The longest pause of the attack is compared with the longest one of a calm time of the same stream
beside it. What an attack may cost besides is seconds of computing, which take longer where other
processes have the cores: how much longer is measured as well. Since chance pauses either, all is
measured again where the attack seems to be noticed: a fault shows each time.

What cannot be done again, such as the end of a balancer, runs inside `bystander(fleet)`, which
checks that the stream has not ended and goes on.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import aiohttp

from integration_tests.corpus import UNENDING
from integration_tests.daemons import DEADLINE, Fleet

TIMES = 2.0
"""By which an attack may make a pause longer, since pauses vary as much, and besides by"""
ALLOWANCE = 0.5
"""seconds of a free core: far below what the attacks cost."""

COMPUTED = 0.05
"""Seconds of computing by which it is measured how busy the machine is."""

NUM_TRIES = 3

LONGEST_CALM = 10.0
"""Seconds of a calm time; it is as long as the attack was, up to this."""

STEADY = 25
"""Steps a second that agents compute beside it: how far it goes says nothing, and it leaves the
cores to the attack and to other tests."""

_MORE_THAN_UNDERWAY = 20
"""Events. The first few after an attack may have been sent before it."""


Load = Callable[["Bystander"], Awaitable[object]]


async def busyness() -> float:
    """How many times as long computing takes as it would on a free core; at least 1."""

    def compute() -> float:
        start, end = time.monotonic(), time.thread_time() + COMPUTED
        while time.thread_time() < end:
            pass
        return time.monotonic() - start

    return max(1.0, await asyncio.to_thread(compute) / COMPUTED)


class Pauses(NamedTuple):
    """The longest pause of each, in seconds."""

    attacked: float
    usual: float


@dataclass
class Bystander:
    """What the stream has seen so far."""

    clock: Callable[[], float] = time.monotonic
    busyness: Callable[[], Awaitable[float]] = busyness
    arrivals: list[float] = field(default_factory=list)
    last: dict[str, Any] | None = None
    """The event that ended it, if one did."""
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self) -> None:
        """Raises `AssertionError` if the stream has ended."""
        assert self.last is None, f"the bystander's stream ended: {self.last}"

    def take(self, event: dict[str, Any]) -> None:
        self.arrivals.append(self.clock())
        if event["event"] in ("done", "error"):
            self.last = event
        self._more.set()

    async def until_more(self, num_events: int = 5) -> None:
        """Waits until that many further events have come: the stream goes on."""
        goal = len(self.arrivals) + num_events
        try:
            async with asyncio.timeout(DEADLINE):
                while len(self.arrivals) < goal and self.last is None:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError("the bystander's stream stands still") from None

    async def until_ended(self) -> None:
        """Waits until the stream has ended, which tests of the bystander itself bring about."""
        await self.until_more(sys.maxsize)

    async def longest_pause(
        self, during: Awaitable[object], num_after: int = _MORE_THAN_UNDERWAY
    ) -> float:
        """The most seconds between two events from now until so many after `during` is done."""
        before = len(self.arrivals) - 1
        await during
        await self.until_more(num_after)
        self.check()
        return max(b - a for a, b in pairwise(self.arrivals[before:]))

    async def compare(
        self, attack: Load, harmless: Load | None = None, allowance: float = ALLOWANCE
    ) -> list[Pauses]:
        """The pauses of the tries that noticed the attack, if all of them did; otherwise none."""
        noticed = []
        for _ in range(NUM_TRIES):
            start = self.clock()
            attacked = await self.longest_pause(attack(self))
            if attacked < allowance:
                return []  # whatever the pause of a calm time is
            took = min(self.clock() - start, LONGEST_CALM)
            usual = await self.longest_pause(harmless(self) if harmless else asyncio.sleep(took))
            # When the attack is over: what it keeps busy itself is no excuse for it.
            allowed = allowance * await self.busyness()
            if attacked < TIMES * usual + allowed:
                return []
            noticed.append(Pauses(attacked, usual))
        return noticed


async def unnoticed(
    fleet: Fleet, attack: Load, *, harmless: Load | None = None, allowance: float = ALLOWANCE
) -> None:
    """Does `attack` beside a stream, which must neither end nor stand still for longer by it.

    The pause that it is compared with is that of a calm time, or of `harmless`, a load that costs
    the same where nothing is hostile about it. Raises `AssertionError` if the pause of the attack
    is more than twice that and `allowance` seconds of a free core longer each time.
    """
    async with bystander(fleet) as seen:
        noticed = await seen.compare(attack, harmless, allowance)
    assert not noticed, f"the bystander's stream stood still: {noticed}"


@asynccontextmanager
async def bystander(fleet: Fleet, body: dict[str, Any] = UNENDING) -> AsyncIterator[Bystander]:
    """A stream that runs while inside; leaving checks that it has not ended and goes on."""
    seen = Bystander()
    async with slowed(fleet), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(_read(fleet, seen, body))
        await seen.until_more()
        yield seen
        await seen.until_more(_MORE_THAN_UNDERWAY)
        reading.cancel()
    seen.check()


@asynccontextmanager
async def slowed(fleet: Fleet) -> AsyncIterator[None]:
    paces = [agent.pace for agent in fleet.agents]
    for pace in paces:
        await pace.slow(STEADY)
    try:
        yield
    finally:
        for pace in paces:
            await pace.slow(None)


async def _read(fleet: Fleet, seen: Bystander, body: dict[str, Any]) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    url = f"{fleet.inference}/api/v1/generate"
    async with fleet.http.post(url, json=body, timeout=timeout) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            seen.take(json.loads(line))
