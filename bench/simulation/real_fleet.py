"""Three real agents that are asked, and what their clients saw."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from statistics import mean
from typing import Any

import aiohttp

from bench.models import TINY, made
from bench.simulation.arrivals import Arrival
from integration_tests.daemons import Fleet

AGENTS, SLOTS, CONTEXT = 3, 4, 2048
DEADLINE = 300.0

PROMPT, ANSWER = 300, 120
"""Tokens of the requests by which agents' speeds are measured."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds to the first token and to the end, and what the answer's end says."""

    first_token: float
    total: float
    end: dict[str, Any]

    @property
    def wait(self) -> float:
        """Seconds until it had a slot."""
        return float(self.end["timings"]["queue_ms"]) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Generated tokens a second over all; mean seconds to a slot, the first token and the end."""

    throughput: float
    wait: float
    first_token: float
    total: float

    @property
    def reading(self) -> float:
        """Mean seconds from the slot to the first token."""
        return self.first_token - self.wait

    @property
    def generating(self) -> float:
        """Mean seconds from the first token to the end."""
        return self.total - self.first_token


class RealFleet:
    """`ask` one request, or `measured` many at their times."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._random = Random(0)

    async def ask(self, tokens: Sequence[int], num_answer: int) -> Answer:
        """Raises `RuntimeError` where the request fails."""
        body = {
            "prompt": list(tokens),
            "max_tokens": num_answer,
            "ignore_eos": True,
            "temperature": 0,
        }
        begun = time.perf_counter()
        first, event = 0.0, {}
        async with self._http.post(f"{self._url}/api/v1/generate", json=body) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["event"] == "token":
                    first = first or time.perf_counter() - begun
        if event.get("event") != "done":
            raise RuntimeError(f"a request failed: {event}")
        return Answer(first, time.perf_counter() - begun, event)

    async def asked(self, num: int) -> list[Answer]:
        """So many requests at once, all alike in length."""
        prompts = [
            [self._random.randrange(1000, 20_000) for _ in range(PROMPT)] for _ in range(num)
        ]
        return await asyncio.gather(*(self.ask(each, ANSWER) for each in prompts))

    async def measured(self, arrivals: Sequence[Arrival]) -> Result:
        """The requests at their times."""

        async def one(arrival: Arrival) -> Answer:
            await asyncio.sleep(arrival.at)
            return await self.ask(prompt_of(arrival), arrival.num_answer)

        begun = time.perf_counter()
        async with asyncio.timeout(DEADLINE):
            answers = await asyncio.gather(*(one(each) for each in arrivals))
        seconds = time.perf_counter() - begun
        return Result(
            throughput=sum(each.num_answer for each in arrivals) / seconds,
            wait=mean(answer.wait for answer in answers),
            first_token=mean(answer.first_token for answer in answers),
            total=mean(answer.total for answer in answers),
        )


def prompt_of(arrival: Arrival) -> list[int]:
    """Tokens that no other request begins with."""
    return [
        1000 + (arrival.session * 7919 + place * 104_729) % 20_000
        for place in range(arrival.num_prompt)
    ]


@asynccontextmanager
async def real_fleet() -> AsyncIterator[RealFleet]:
    """A balancer and agents of one thread each, as processes on this machine."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(max_buffered_requests=10_000, buffered_request_timeout="5m")
        for number in range(AGENTS):
            await fleet.start_agent(
                model=made(TINY),
                name=f"host-{number + 1}",
                slots=SLOTS,
                context_size=CONTEXT,
                threads=1,
                host_cache=0,
            )
        yield RealFleet(fleet.http, fleet.inference)
