"""A well-behaved stream beside a hostile request: it must neither end nor stall.

Run the hostile request inside `bystander(fleet)`. Leaving it checks that the stream was still
going, that no error reached it, and that its longest pause stayed below `most_gap` seconds.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import aiohttp

from integration_tests.corpus import ENDLESS
from integration_tests.daemons import Fleet

MOST_GAP = 3.0
"""Seconds. Far above what a busy machine adds to a token, far below what the attacks cost."""

START_DEADLINE = 20.0

_MORE_THAN_UNDERWAY = 40
"""Events. The first few after an attack may have been sent before it."""


@dataclass
class Bystander:
    """What the stream has seen so far."""

    arrivals: list[float] = field(default_factory=list)
    last: dict[str, Any] | None = None
    """The event that ended it, if one did."""
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def longest_gap(self) -> float:
        """Seconds between two events, the time since the last one included."""
        now = asyncio.get_running_loop().time()
        return max(b - a for a, b in pairwise([*self.arrivals, now]))

    def check(self, most_gap: float, gap: float | None = None) -> None:
        """Raises `AssertionError` if the stream has ended or stood still so far."""
        assert self.last is None, f"the bystander's stream ended: {self.last}"
        gap = self.longest_gap if gap is None else gap
        assert gap < most_gap, f"the bystander's stream stood still for {gap:.2f} s"

    def take(self, event: dict[str, Any]) -> None:
        self.arrivals.append(asyncio.get_running_loop().time())
        if event["event"] in ("done", "error"):
            self.last = event
        self._more.set()

    async def until_more(self, num_events: int = 5) -> None:
        """Waits until that many further events have come: the stream goes on."""
        goal = len(self.arrivals) + num_events
        async with asyncio.timeout(START_DEADLINE):
            while len(self.arrivals) < goal and self.last is None:
                self._more.clear()
                await self._more.wait()

    async def until_ended(self) -> None:
        """Waits until the stream has ended, which tests of the bystander itself bring about."""
        await self.until_more(sys.maxsize)


@asynccontextmanager
async def bystander(fleet: Fleet, *, most_gap: float = MOST_GAP) -> AsyncIterator[Bystander]:
    """A stream that runs while inside; its agent needs a context that it does not fill."""
    seen = Bystander()
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(_read(fleet, seen))
        await seen.until_more()
        yield seen
        await seen.until_more(_MORE_THAN_UNDERWAY)
        gap = seen.longest_gap
        reading.cancel()
    seen.check(most_gap, gap)


async def _read(fleet: Fleet, seen: Bystander) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    url = f"{fleet.inference}/api/v1/generate"
    async with fleet.http.post(url, json=ENDLESS, timeout=timeout) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            seen.take(json.loads(line))
