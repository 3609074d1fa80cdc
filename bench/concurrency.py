"""`make bench`: continuous batching against one at a time and against static batches.

One balancer and one agent serve requests that are mixed in length, in every way in turn; a round
runs all the ways once, every other round in the other order. Lengths are the same for all ways of
a round, words are not, so that no way gets cache hits from another. Figures are medians over
the rounds, each ratio is the median of the ratios within rounds.
"""

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import uvloop
from rich.table import Table

from bench import prompts, ways
from bench.arguments import at_least, model_file
from bench.client import Client
from bench.dialects import Request
from bench.figures import (
    BETWEEN_TOKENS,
    FIRST_TOKEN,
    TOKENS_PER_SECOND,
    RequestsFailed,
    median_of,
    of_burst,
    ratio,
    shown,
)
from bench.sample import Sample
from bench.sides import Load, start_ours
from bench.store import save, wide_console
from integration_tests.daemons import MODEL

SIZES = (1, 2, 4, 8)
CONTEXT_SIZE = 512


@dataclass(frozen=True, slots=True)
class Way:
    """A way of serving, with its own baseline: the static batches of the same size."""

    name: str
    size: int
    run: Callable[..., Awaitable[list[Sample]]]


STATIC = {size: Way("static" if size > 1 else "one at a time", size, ways.static) for size in SIZES}
CONTINUOUS = {size: Way("continuous", size, ways.continuous) for size in SIZES}
WAYS = (*STATIC.values(), *CONTINUOUS.values())

Round = dict[Way, dict[str, float]]


async def run_round(client: Client, number: int, arguments: argparse.Namespace) -> Round:
    """Every way once. Raises `RequestsFailed`."""
    figures = {}
    for index in range(len(WAYS)) if number % 2 else reversed(range(len(WAYS))):
        requests = _requests(number, index, arguments.requests, arguments.words)
        figures[WAYS[index]] = of_burst(
            await WAYS[index].run(client, requests, size=WAYS[index].size)
        )
    return figures


def _requests(number: int, index: int, num_requests: int, num_words: int) -> list[Request]:
    seed = number * len(WAYS) + index
    return prompts.mixed(seed, num_requests, num_words=num_words, lengths_seed=number)


async def run(arguments: argparse.Namespace) -> list[Round]:
    """One balancer and one agent; all the rounds."""
    load = Load(arguments.model, max(SIZES), CONTEXT_SIZE, arguments.threads)
    async with AsyncExitStack() as stack:
        side = await start_ours(stack, load)
        first = _requests(0, 0, max(SIZES), arguments.words)
        # Warms up, and shows early when requests fail.
        of_burst(await ways.continuous(side.client, first, size=max(SIZES)))
        rounds = []
        for number in range(1, arguments.rounds + 1):
            rounds.append(await run_round(side.client, number, arguments))
            print(f"round {number} of {arguments.rounds} is done", flush=True)
        return rounds


def rows(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """One row a way: medians, and ratios against one at a time and the static batches."""
    return [_row(rounds, way) for way in WAYS]


def _row(rounds: Sequence[Round], way: Way) -> dict[str, Any]:
    own, one, static = (
        [figures[each] for figures in rounds] for each in (way, STATIC[1], STATIC[way.size])
    )
    return {
        "way": way.name,
        "size": way.size,
        **{name: median_of(own, name) for name in own[0]},
        "throughput of one": str(ratio(own, one, TOKENS_PER_SECOND)),
        "throughput of static": str(ratio(own, static, TOKENS_PER_SECOND)),
        "first token of static": str(ratio(own, static, FIRST_TOKEN)),
    }


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="The same work, served in different ways; ratios: median (least to most)")
    shares = ("throughput of one", "throughput of static", "first token of static")
    for heading in ("way", "size", TOKENS_PER_SECOND, FIRST_TOKEN, BETWEEN_TOKENS, *shares):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for row in rows:
        figures = (
            shown(name, row[name]) if name in row else "-"
            for name in (TOKENS_PER_SECOND, FIRST_TOKEN, BETWEEN_TOKENS)
        )
        table.add_row(row["way"], str(row["size"]), *figures, *(row[name] for name in shares))
    wide_console().print(table)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.concurrency")
    parser.add_argument(
        "--model", type=model_file, default=MODEL, help="GGUF file, or tiny or q06 by name"
    )
    parser.add_argument(
        "--requests", type=at_least(max(SIZES)), default=48, help="requests of each way"
    )
    parser.add_argument("--words", type=at_least(1), default=64, help="words of each prompt")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="times all the ways are run")
    parser.add_argument(
        "--threads", type=at_least(1), default=os.cpu_count() or 1, help="threads of the engine"
    )
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    try:
        rounds = uvloop.run(run(arguments))
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    table = rows(rounds)
    show(table)
    settings = {
        "model": arguments.model.name,
        "requests": arguments.requests,
        "threads": arguments.threads,
    }
    raw = [{f"{way.name} {way.size}": figures[way] for way in WAYS} for figures in rounds]
    save("concurrency", {**settings, "rows": table, "rounds": raw})


if __name__ == "__main__":
    main()
