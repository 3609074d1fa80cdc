"""`make bench`: continuous batching against one at a time and against static batches.

One balancer and one agent serve requests that are mixed in length, in every way in turn. Lengths
are the same for all ways of a round, words are not, so no way gets cache hits from another. Figures
are medians over the rounds, each ratio is the median of the ratios within rounds.
"""

import argparse
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench import prompts, ways
from bench.dialects import Request
from bench.figures import (
    BETWEEN_TOKENS,
    FIRST_TOKEN,
    TOKENS_PER_SECOND,
    Rounds,
    median_of,
    of_burst,
    ratio,
    shown,
)
from bench.harness import Flags, at_least, finished, in_turn, print_table, save
from bench.sample import Sample
from bench.sides import Load, start_ours
from integration_tests.daemons import MODEL

SIZES = (1, 2, 4, 8)
CONTEXT_SIZE = 512
FIGURES = (TOKENS_PER_SECOND, FIRST_TOKEN, BETWEEN_TOKENS)


@dataclass(frozen=True, slots=True)
class Way:
    """A way of serving, with its own baseline: the static batches of the same size."""

    name: str
    size: int
    run: Callable[..., Awaitable[list[Sample]]]

    def __str__(self) -> str:
        return f"{self.name} {self.size}"


STATIC = {size: Way("static" if size > 1 else "one at a time", size, ways.static) for size in SIZES}
WAYS = (*STATIC.values(), *(Way("continuous", size, ways.continuous) for size in SIZES))


async def run(given: argparse.Namespace) -> Rounds:
    """All the rounds, with one balancer and one agent. Raises `RequestsFailed`."""

    def requests(number: int, way: Way) -> list[Request]:
        seed = number * len(WAYS) + WAYS.index(way)
        return prompts.mixed(seed, given.requests, num_words=given.words, lengths_seed=number)

    rounds: Rounds = {str(way): [] for way in WAYS}
    async with AsyncExitStack() as stack:
        load = Load(given.model, max(SIZES), CONTEXT_SIZE, given.threads)
        client = (await start_ours(stack, load)).client
        await ways.continuous(client, requests(0, WAYS[0])[: max(SIZES)], size=max(SIZES))
        for number, way in in_turn(WAYS, given.rounds):
            samples = await way.run(client, requests(number, way), size=way.size)
            rounds[str(way)].append(of_burst(samples))
            print(f"round {number} of {given.rounds}: {way}", flush=True)
    return rounds


def rows(rounds: Rounds) -> Iterator[list[str]]:
    """One row for each way: medians, and ratios to one at a time and to static batches."""
    for way in WAYS:
        own, one, static = (rounds[str(each)] for each in (way, STATIC[1], STATIC[way.size]))
        medians = (shown(each, median_of(own, each)) if each in own[0] else "-" for each in FIGURES)
        ratios = (
            ratio(own, one, TOKENS_PER_SECOND),
            ratio(own, static, TOKENS_PER_SECOND),
            ratio(own, static, FIRST_TOKEN),
        )
        yield [way.name, str(way.size), *medians, *map(str, ratios)]


def main() -> None:
    flags = Flags("concurrency", __doc__)
    flags.file(MODEL)
    flags.rounds(5)
    flags.threads()
    help = "requests of each way (48)"
    flags.add_argument("--requests", type=at_least(max(SIZES)), default=48, help=help)
    flags.add_argument("--words", type=at_least(1), default=64, help="words of each prompt (64)")
    given = flags.parse_args()
    rounds = finished(run(given))
    title = "The same work, served in different ways; ratios: median (least to most)"
    ratios = ("throughput of one", "throughput of static", "first token of static")
    print_table(title, ("way", "size", *FIGURES, *ratios), rows(rounds))
    save("concurrency", {"given": vars(given), "rounds": rounds})


if __name__ == "__main__":
    main()
