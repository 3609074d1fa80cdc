"""The prediction beside the fact: three real agents are asked what simulated ones were.

Their speeds are measured first, with all three busy, since they share this machine. A rehearsal,
other requests of the same kind all at once, says how much slower reading and generating are when
they are mixed. Then agents and simulation get the same requests at the same times.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from statistics import mean, median
from typing import Any

import aiohttp
from rich.table import Table

from bench.models import TINY, made
from bench.routing.host import Speeds
from bench.routing.simulation import HostKind
from bench.simulation.arrivals import Arrival, Lengths, one_by_one
from bench.simulation.world import Policy, World, scheduled
from bench.store import save, wide_console
from integration_tests.daemons import Fleet

AGENTS, SLOTS, CONTEXT = 3, 4, 2048
REQUESTS = 90
DEADLINE = 300.0
LENGTHS = Lengths(prompt=300, answer=120, spread=0.6, most=900)
REHEARSAL = 1000
"""Added to a seed, so that what is rehearsed is not what is asked."""

BUSY = 0.7
"""Of all slots, about; more would make a small error of the speeds a large one of the waits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds to the first token and to the end, and what the answer's end says."""

    first_token: float
    total: float
    end: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Generated tokens a second over all, mean seconds to the first token and to the end."""

    throughput: float
    first_token: float
    total: float


async def ask(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Answer:
    """Raises `RuntimeError` where the request fails."""
    begun = time.perf_counter()
    first, event = 0.0, {}
    async with http.post(f"{url}/api/v1/generate", json=body) as response:
        async for line in response.content:
            event = json.loads(line)
            if event["event"] == "token":
                first = first or time.perf_counter() - begun
    if event.get("event") != "done":
        raise RuntimeError(f"a request failed: {event}")
    return Answer(first, time.perf_counter() - begun, event)


def body_of(tokens: Sequence[int], num_answer: int) -> dict[str, Any]:
    """A request of these tokens."""
    return {
        "prompt": list(tokens),
        "max_tokens": num_answer,
        "ignore_eos": True,
        "temperature": 0,
    }


def prompt_of(arrival: Arrival) -> list[int]:
    """Tokens that no other request begins with."""
    return [
        1000 + (arrival.session * 7919 + place * 104729) % 20_000
        for place in range(arrival.num_prompt)
    ]


async def speeds_of(http: aiohttp.ClientSession, url: str) -> Speeds:
    """From answers with one, and with all slots of each agent busy: medians of what they say."""
    random = Random(0)

    async def together(num: int) -> list[dict[str, Any]]:
        bodies = [
            body_of([random.randrange(1000, 20_000) for _ in range(300)], 120) for _ in range(num)
        ]
        answers = await asyncio.gather(*(ask(http, url, body) for body in bodies))
        return [answer.end["timings"] for answer in answers]

    await together(AGENTS * SLOTS)  # warms up
    one = await together(AGENTS) + await together(AGENTS)
    all_ = await together(AGENTS * SLOTS) + await together(AGENTS * SLOTS)
    step_of_one = 1 / median(each["decode_tokens_per_second"] for each in one)
    step_of_all = 1 / median(each["decode_tokens_per_second"] for each in all_)
    sequence = max(0.0, (step_of_all - step_of_one) / (SLOTS - 1))
    return Speeds(
        prefill=median(each["prefill_tokens_per_second"] for each in one),
        step=max(0.0, step_of_one - sequence),
        sequence=sequence,
    )


async def measured(http: aiohttp.ClientSession, url: str, arrivals: list[Arrival]) -> Result:
    """The requests at their times, from three real agents."""

    async def one(arrival: Arrival) -> Answer:
        await asyncio.sleep(arrival.at)
        return await ask(http, url, body_of(prompt_of(arrival), arrival.num_answer))

    begun = time.perf_counter()
    async with asyncio.timeout(DEADLINE):
        answers = await asyncio.gather(*(one(each) for each in arrivals))
    seconds = time.perf_counter() - begun
    return Result(
        throughput=sum(each.num_answer for each in arrivals) / seconds,
        first_token=mean(answer.first_token for answer in answers),
        total=mean(answer.total for answer in answers),
    )


async def slowdown(
    http: aiohttp.ClientSession, url: str, speeds: Speeds, arrivals: list[Arrival]
) -> float:
    """How much longer these requests, all at once, take than with these speeds."""
    at_once = [replace(each, at=0.0) for each in arrivals]
    fact = await measured(http, url, at_once)
    return predicted(speeds, at_once).throughput / fact.throughput


def slower(speeds: Speeds, times: float) -> Speeds:
    """All of it takes so many times as long."""
    return Speeds(
        prefill=speeds.prefill / times, step=speeds.step * times, sequence=speeds.sequence * times
    )


def predicted(speeds: Speeds, arrivals: list[Arrival]) -> Result:
    """The same by simulation."""
    kind = HostKind(slots=SLOTS, cache=SLOTS * CONTEXT, speeds=speeds)
    outcome = World(
        [kind] * AGENTS,
        iter(arrivals),
        num_requests=len(arrivals),
        policy=Policy(),
        make_host=scheduled,
    ).run()
    return Result(
        throughput=outcome.num_answer / outcome.seconds,
        first_token=mean(outcome.first_tokens),
        total=mean(outcome.totals),
    )


def rate_for(speeds: Speeds) -> float:
    """Requests a second that keep `BUSY` of the slots busy."""
    random = Random(0)
    drawn = [LENGTHS.draw(random) for _ in range(1000)]
    step = speeds.step + speeds.sequence * SLOTS * BUSY
    seconds = mean(prompt / speeds.prefill + answer * step for prompt, answer in drawn)
    return AGENTS * SLOTS * BUSY / seconds


def drawn(seed: int, rate: float) -> list[Arrival]:
    """`REQUESTS`, at so many a second."""
    return list(islice(one_by_one(Random(seed), rate, lengths=LENGTHS), REQUESTS))


async def main(seed: int, rounds: int = 3) -> None:
    """Prints and keeps the prediction and the fact of each round."""
    table = Table(title="Three real agents: measured, predicted, and their ratio")
    for heading in ("round", "tokens per second", "first token, ms", "whole answer, ms"):
        table.add_column(heading, justify="right")
    kept = []
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(max_buffered_requests=10_000, buffered_request_timeout="5m")
        for number in range(AGENTS):
            name = f"host-{number + 1}"
            settings = {"slots": SLOTS, "context_size": CONTEXT, "threads": 1, "host_cache": 0}
            await fleet.start_agent(model=made(TINY), name=name, **settings)
        for number in range(rounds):
            speeds = await speeds_of(fleet.http, fleet.inference)
            rehearsal = drawn(REHEARSAL + seed + number, 1.0)
            times = await slowdown(fleet.http, fleet.inference, speeds, rehearsal)
            speeds = slower(speeds, times)
            arrivals = drawn(seed + number, rate_for(speeds))
            fact = await measured(fleet.http, fleet.inference, arrivals)
            paper = predicted(speeds, arrivals)
            table.add_row(
                str(number + 1),
                _beside(fact.throughput, paper.throughput),
                _beside(fact.first_token * 1000, paper.first_token * 1000),
                _beside(fact.total * 1000, paper.total * 1000),
            )
            kept.append({"speeds": repr(speeds), "measured": repr(fact), "predicted": repr(paper)})
    wide_console().print(table)
    save("simulate_check", {"rounds": kept})


def _beside(fact: float, paper: float) -> str:
    return f"{fact:,.0f}, {paper:,.0f}: {paper / fact:.2f}"
