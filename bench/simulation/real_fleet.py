"""Real agents that are asked, and what their clients saw."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from arriero.shared.inference import GenerateRequest
from bench.models import TINY, made
from bench.simulation.arrivals import Arrival
from bench.simulation.prompts import completion_of
from bench.simulation.result import Answer
from integration_tests.daemons import Fleet

AGENTS, SLOTS, CONTEXT = 3, 4, 1024
STREAMS = 3 * SLOTS
"""Caches of one sequence, of an agent: those of running ones, and twice as many prefixes."""
DEADLINE = 300.0


class RealFleet:
    """A balancer, to which agents are added by `join`, and its clients.

    `ask` one request, `together` some that are alike, or `served` many at their times.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._random = Random(0)

    async def join(self) -> None:
        """One more agent, with an engine of one thread.

        Its sequences have caches of their own: in one that all share, steps take longer the more
        its cells have been used, and a third to twice as long later as at first.
        """
        await self._fleet.start_agent(
            model=made(TINY),
            slots=SLOTS,
            context_size=CONTEXT,
            threads=1,
            host_cache=0,
            kv_layout="streams",
            kv_cells=STREAMS * CONTEXT,
        )

    async def ask(self, request: GenerateRequest) -> Answer:
        """Raises `RuntimeError` where it fails."""
        body = {
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        begun = time.perf_counter()
        first, event = 0.0, {}
        url = f"{self._fleet.inference}/api/v1/generate"
        async with self._fleet.http.post(url, json=body) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["event"] == "token":
                    first = first or time.perf_counter() - begun
        if event.get("event") != "done":
            raise RuntimeError(f"a request failed: {event}")
        return _answer(first, time.perf_counter() - begun, event)

    async def together(self, num: int, *, num_prompt: int, num_answer: int) -> list[Answer]:
        """Send `num` requests at once, which have nothing in common but their lengths."""
        requests = [
            GenerateRequest(
                prompt=tuple(self._random.randrange(1000, 20_000) for _ in range(num_prompt)),
                max_tokens=num_answer,
            )
            for _ in range(num)
        ]
        return await asyncio.gather(*map(self.ask, requests))

    async def served(self, arrivals: Sequence[Arrival]) -> tuple[list[Answer], float]:
        """The requests at their times; and the seconds until the last one's end."""

        async def one(arrival: Arrival) -> Answer:
            await asyncio.sleep(arrival.at)
            return await self.ask(completion_of(arrival))

        begun = time.perf_counter()
        async with asyncio.timeout(DEADLINE):
            answers = await asyncio.gather(*map(one, arrivals))
        return answers, time.perf_counter() - begun


def _answer(first: float, total: float, end: dict[str, Any]) -> Answer:
    usage, timings = end["usage"], end["timings"]
    return Answer(
        wait=timings["queue_ms"] / 1000,
        first_token=first,
        total=total,
        num_prompt=usage["prompt_tokens"],
        num_cached=usage["cached_tokens"],
        num_answer=usage["completion_tokens"],
        reading_rate=timings["prefill_tokens_per_second"],
        generating_rate=timings["decode_tokens_per_second"],
    )


@asynccontextmanager
async def real_fleet() -> AsyncIterator[RealFleet]:
    """A balancer without agents, as a process on this machine."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(max_buffered_requests=10_000, buffered_request_timeout="5m")
        yield RealFleet(fleet)
