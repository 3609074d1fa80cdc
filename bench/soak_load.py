"""The load of a soak of everything: all kinds of requests at once, and all answers checked.

Answers that are known come from the load of `bench.chaos`. Beside it two clients send prompts that
were never sent before, which fill every cache, and rude clients disconnect in the middle of
answers.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bench import prompts
from bench.chaos.clients.load import Load
from bench.chaos.clients.rude_clients import RudeClients
from bench.chaos.judge import Judge
from bench.chaos.wire.network import Loopback
from bench.client import Client
from bench.dialects import NATIVE, Request
from bench.figures import RequestsFailed, check

LONGEST_SILENCE = 60.0
"""Seconds. Memory is asked about, not speed; other work may have the machine."""

NUM_ASKERS = 2
MOST_WORDS, NUM_TOKENS = 200, 8
BETWEEN_LEAVERS = 1.0


class SoakLoad:
    """`num_requests` is what was asked so far, rude clients left out."""

    def __init__(self, host: str, port: int) -> None:
        url = f"http://{host}:{port}"
        self.num_requests = 0
        self._client = Client(host, port, NATIVE)
        self._load = Load(url, None, time.monotonic)
        self._rude = RudeClients(url, Loopback())
        self._judge: Judge | None = None

    async def run(self, seed: int, seconds: float) -> None:
        """Raises `RequestsFailed` with the first answer that is not as it must be."""
        if self._judge is None:
            self._judge = Judge(await self._load.learn(), LONGEST_SILENCE)
        self._load.records = []
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._load.run(seed, stop))
            for number in range(NUM_ASKERS):
                group.create_task(_repeat(stop, self._ask, random.Random(f"{seed} {number}")))
            group.create_task(_repeat(stop, self._leave, random.Random(seed)))
            await asyncio.sleep(seconds)
            stop.set()
        self._check(self._judge)

    async def _ask(self, draw: random.Random) -> None:
        text = prompts.text(draw, draw.randint(1, MOST_WORDS))
        check([await self._client.ask(Request(text, NUM_TOKENS))])
        self.num_requests += 1

    async def _leave(self, draw: random.Random) -> None:
        await self._rude.vanish(draw.random())
        await asyncio.sleep(BETWEEN_LEAVERS)

    def _check(self, judge: Judge) -> None:
        for record in self._load.records:
            if found := judge.findings(record, ()):
                raise RequestsFailed(f"{'; '.join(found)}: {record.document()}")
        self.num_requests += len(self._load.records)


async def _repeat(
    stop: asyncio.Event,
    work: Callable[[random.Random], Coroutine[Any, Any, None]],
    draw: random.Random,
) -> None:
    while not stop.is_set():
        await work(draw)
