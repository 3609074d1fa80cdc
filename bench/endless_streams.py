"""Streams that run while something else happens, and the longest gap that they have meanwhile."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

from aiohttp import ClientTimeout

from integration_tests.daemons import Fleet

GENERATE = "/api/v1/generate"
PATIENCE = ClientTimeout(total=None)
WARM_UP = 3.0
"""Seconds of all streams before anything is measured: what steps cost is learnt."""
AFTERWARDS = 1.0
"""Seconds in which a gap that has begun ends."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What streams saw while something was done.

    `gap`: the longest of any stream that overlaps that time; `seconds`: how long it took;
    `num_tokens`: what the slowest stream got meanwhile.
    """

    gap: float
    seconds: float
    num_tokens: int


class EndlessStreams:
    """Streams of `model`, each of which goes on until all are ended."""

    def __init__(self, fleet: Fleet, model: str) -> None:
        self._fleet = fleet
        self._model = model
        self._times: list[list[float]] = []

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator[None]:
        """Inside, `count` of them. Raises `SystemExit` where one ends."""
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(self._read(number)) for number in range(count)]
            await asyncio.sleep(WARM_UP)
            yield
            for each in reading:
                each.cancel()

    async def watched(self, doing: Callable[[], Awaitable[object]]) -> Watched:
        """Do it, and say what streams saw meanwhile."""
        since = time.perf_counter()
        await doing()
        until = time.perf_counter()
        await asyncio.sleep(AFTERWARDS)
        return seen(self._times, since, until)

    async def _read(self, number: int) -> None:
        self._times.append(times := [])
        body = {"model": self._model, "prompt": f"Of mule {number} there is this to tell:"}
        body |= {"max_tokens": 1_000_000, "ignore_eos": True, "n_discard": 1024}
        url, line = self._fleet.inference + GENERATE, b""
        async with self._fleet.http.post(url, json=body, timeout=PATIENCE) as response:
            async for line in response.content:
                if json.loads(line).get("event") == "token":
                    times.append(time.perf_counter())
        raise SystemExit(f"bench: a stream ended: {line.decode()}")


def seen(streams: Sequence[Sequence[float]], since: float, until: float) -> Watched:
    """From the times at which each of `streams` got its tokens."""
    gaps = [b - a for times in streams for a, b in pairwise(times) if b > since and a <= until]
    return Watched(
        gap=max(gaps),
        seconds=until - since,
        num_tokens=min(sum(since < at <= until for at in times) for times in streams),
    )
