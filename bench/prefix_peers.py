"""A prefix fetched from another agent against one that is computed: `python -m bench.prefix_peers`.

Two agents with one slot and one thread each, and a balancer that chooses by itself. In each round
the first agent streams after a prompt and is full, so the second gets two requests, in turns which
first: one with that prompt, which it can fetch, and one with another prompt of the same length,
which it has to compute. What counts is the time to the first token. No two rounds have a prompt in
common. The stream goes on meanwhile; its longest gap is reported, too.
"""

import argparse
import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bench.answers import PATIENT, Answer, generate
from bench.figures import LONGEST_GAP, RequestsFailed, longest_gap, median_of, shown, spread
from bench.harness import Flags, at_least, finished, print_table, save
from bench.models import SHAPES, made
from integration_tests.daemons import Fleet

COMPUTED, FETCHED = "computed", "fetched"
TOKENS = range(10, 250)
"""Ids that every model has."""

WARM_UP = 256
"""Tokens of the prompts by which the balancer learns how fast the agents are."""


def prompt(draw: random.Random, length: int) -> list[int]:
    """Token ids that no agent has computed."""
    return draw.choices(TOKENS, k=length)


def body(ids: list[int], **fields: object) -> dict[str, Any]:
    """A request for the native API."""
    return {"prompt": ids, "temperature": 0, "ignore_eos": True, **fields}


@asynccontextmanager
async def streaming(fleet: Fleet, ids: list[int]) -> AsyncIterator[Answer]:
    """A stream that has begun, and goes on."""
    answer = Answer()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(generate(fleet, body(ids), answer))
        await answer.is_under_way.wait()
        yield answer
        task.cancel()
    await fleet.until_idle(600.0)


async def first_token(fleet: Fleet, ids: list[int], *, cached: int) -> float:
    """Seconds until it came. Raises `RequestsFailed` if other than `cached` tokens were cached."""
    answer = await generate(fleet, body(ids, max_tokens=2))
    if answer.usage["cached_tokens"] != cached or answer.end.get("agent") != "two":
        raise RequestsFailed(f"{cached} tokens should be cached at the second agent: {answer.end}")
    return answer.first_token


async def round_of(
    fleet: Fleet, length: int, seed: str, *, fetches_first: bool
) -> dict[str, float]:
    """First tokens, and the longest gap of the stream beside while the prefix was fetched."""
    draw = random.Random(seed)
    known, unknown = prompt(draw, length), prompt(draw, length)
    found = {}
    async with streaming(fleet, known) as stream:
        for fetches in (fetches_first, not fetches_first):
            began = time.perf_counter()
            if fetches:
                found[FETCHED] = await first_token(fleet, known, cached=length - 1)
                found[LONGEST_GAP] = longest_gap(stream.times, since=began)
            else:
                found[COMPUTED] = await first_token(fleet, unknown, cached=0)
    return found


async def measure(given: argparse.Namespace) -> dict[int, list[dict[str, float]]]:
    """The figures of each length. Raises `RequestsFailed`."""
    model = made(SHAPES[given.model])
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(**PATIENT)
        size = max(given.lengths) + 2048
        settings = {"model": model, "slots": 1, "context_size": size, "threads": 1}
        for name in ("one", "two"):
            await fleet.start_agent(name=name, peer_addr="127.0.0.1:0", **settings)
        draw = random.Random("warm-up")
        async with streaming(fleet, prompt(draw, WARM_UP)):
            await generate(fleet, body(prompt(draw, WARM_UP), max_tokens=4, stream=False))
        return {
            length: [
                await round_of(fleet, length, f"{length} {number}", fetches_first=number % 2 == 1)
                for number in range(given.rounds)
            ]
            for length in given.lengths
        }


def row(length: int, rounds: list[dict[str, float]]) -> list[str]:
    """Medians of one length, and the ratio."""
    medians = (shown(name, median_of(rounds, name)) for name in (COMPUTED, FETCHED))
    ratios = spread([one[FETCHED] / one[COMPUTED] for one in rounds], "{:.2f}".format)
    gap = max(one[LONGEST_GAP] for one in rounds)
    return [f"{length} tokens", *medians, ratios, shown(LONGEST_GAP, gap)]


def main() -> None:
    flags = Flags("prefix_peers", __doc__)
    flags.shape("q06")
    flags.rounds(5)
    flags.add_argument("--lengths", type=at_least(65), nargs="+", default=[512, 1024, 1536])
    given = flags.parse_args()
    found = finished(measure(given))
    columns = ("prefix", COMPUTED, FETCHED, "ratio", "sender's longest gap")
    rows = (row(length, rounds) for length, rounds in found.items())
    print_table("First tokens: medians (least to most) of the rounds", columns, rows)
    save("prefix_peers", {"given": vars(given), "rounds": found})


if __name__ == "__main__":
    main()
