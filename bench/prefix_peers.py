"""A prefix fetched from another agent against one that is computed: `python -m bench.prefix_peers`.

Two agents with one slot and one thread each, and a balancer that chooses by itself. In each round
the first agent streams after a prompt and is full, so the second gets two requests, in turns which
first: one with that prompt, which it can fetch, and one with another prompt of the same length,
which it has to compute. What counts is the time to the first token. No two rounds have a prompt in
common. The stream goes on meanwhile; its longest gap is reported, too.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from aiohttp import ClientTimeout

from bench.arguments import at_least
from bench.models import SHAPES, made
from integration_tests.daemons import Fleet, until

PATIENCE = ClientTimeout(total=None)
TOKENS = range(10, 250)
"""Ids that every model has."""

WARM_UP = 256
"""Tokens of the prompts by which the balancer learns how fast the agents are."""


@dataclass(slots=True)
class Stream:
    """When its tokens came."""

    times: list[float] = field(default_factory=list)

    def longest_gap(self, since: float) -> float:
        """Seconds between two tokens, the later of which came after `since`."""
        pairs = zip(self.times, self.times[1:], strict=False)
        return max((after - before for before, after in pairs if after > since), default=0.0)


def prompt(draw: random.Random, length: int) -> list[int]:
    """Token ids that no agent has computed."""
    return draw.choices(TOKENS, k=length)


def body(ids: list[int], **fields: object) -> dict[str, Any]:
    """A request for the native API."""
    return {"prompt": ids, "temperature": 0, "ignore_eos": True, **fields}


@asynccontextmanager
async def streaming(fleet: Fleet, ids: list[int]) -> AsyncIterator[Stream]:
    """A stream that has begun, and goes on."""
    stream = Stream()

    async def follow() -> None:
        url = f"{fleet.inference}/api/v1/generate"
        async with fleet.http.post(url, json=body(ids), timeout=PATIENCE) as response:
            async for line in response.content:
                if json.loads(line)["event"] == "token":
                    stream.times.append(time.perf_counter())

    async def has_begun() -> bool:
        return len(stream.times) > 1

    task = asyncio.create_task(follow())
    try:
        await until(has_begun, deadline=600.0)
        yield stream
    finally:
        task.cancel()
        await asyncio.wait({task})
        await fleet.until_idle(600.0)


async def first_token(fleet: Fleet, ids: list[int], *, cached: int) -> float:
    """Seconds until it came. Raises `SystemExit` where other than `cached` tokens were cached."""
    began, first = time.perf_counter(), 0.0
    url = f"{fleet.inference}/api/v1/generate"
    request = body(ids, max_tokens=2)
    async with fleet.http.post(url, json=request, timeout=PATIENCE) as response:
        async for line in response.content:
            event = json.loads(line)
            if event["event"] == "token" and not first:
                first = time.perf_counter() - began
    usage = event.get("usage") or {}
    if usage.get("cached_tokens") != cached or event.get("agent") != "two":
        raise SystemExit(f"bench: {cached} tokens should be cached at the second agent: {event}")
    return first


async def round_of(fleet: Fleet, length: int, seed: str, *, fetches_first: bool) -> list[float]:
    """First token computed, first token fetched, and the longest gap of the stream beside."""
    draw = random.Random(seed)
    known, unknown = prompt(draw, length), prompt(draw, length)
    times: dict[bool, float] = {}
    async with streaming(fleet, known) as stream:
        gap = 0.0
        for fetches in (fetches_first, not fetches_first):
            began = time.perf_counter()
            cached = length - 1 if fetches else 0
            times[fetches] = await first_token(fleet, known if fetches else unknown, cached=cached)
            gap = stream.longest_gap(began) if fetches else gap
    return [times[False], times[True], gap]


async def measure(arguments: argparse.Namespace) -> None:
    """Print first tokens, and their ratio round by round."""
    model = made(SHAPES[arguments.model])
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(first_token_timeout=600)
        size = max(arguments.lengths) + 2048
        settings = {"model": model, "slots": 1, "context_size": size, "threads": 1}
        for name in ("one", "two"):
            await fleet.start_agent(name=name, peer_addr="127.0.0.1:0", **settings)
        draw = random.Random("warm-up")
        async with streaming(fleet, prompt(draw, WARM_UP)):
            await _warm(fleet, prompt(draw, WARM_UP))
        for length in arguments.lengths:
            rounds = [
                await round_of(fleet, length, f"{length} {number}", fetches_first=number % 2 == 1)
                for number in range(arguments.rounds)
            ]
            print(_line(length, rounds), flush=True)


async def _warm(fleet: Fleet, ids: list[int]) -> None:
    url = f"{fleet.inference}/api/v1/generate"
    request = body(ids, max_tokens=4, stream=False)
    async with fleet.http.post(url, json=request, timeout=PATIENCE) as response:
        await response.read()


def _line(length: int, rounds: list[list[float]]) -> str:
    computed, fetched, gaps = zip(*rounds, strict=True)
    ratios = [two / one for one, two in zip(computed, fetched, strict=True)]
    return (
        f"{length} tokens: computed {median(computed) * 1000:.0f} ms, "
        f"fetched {median(fetched) * 1000:.0f} ms, fetched to computed {median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}); longest gap of the sender's stream "
        f"{max(gaps) * 1000:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.prefix_peers")
    parser.add_argument("--model", choices=sorted(SHAPES), default="q06")
    parser.add_argument("--lengths", type=at_least(65), nargs="+", default=[512, 1024, 1536])
    parser.add_argument("--rounds", type=at_least(1), default=5)
    asyncio.run(measure(parser.parse_args(sys.argv[1:])))


if __name__ == "__main__":
    main()
