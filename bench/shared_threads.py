"""Two models on one host, by how they share its threads: `python -m bench.shared_threads`.

Both have an engine process and a load of their own: streams with short prompts, as many as slots.
Each round starts all ways anew, and begins with another. What an agent does is what the even ways
measure: each engine has its share while the other one runs, and all threads when that has ended.
The others are what would be, were threads shared only when an engine starts.
"""

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import uvloop
from rich.table import Table

from arriero.agent.cpu_cores import default_threads
from bench import prompts, ways
from bench.arguments import at_least, model_file
from bench.figures import (
    BETWEEN_TOKENS,
    TOKENS_PER_SECOND,
    RequestsFailed,
    check,
    of_burst,
    shown,
)
from bench.models import Q06
from bench.sample import Sample
from bench.sides import Load, Side, start_ours
from bench.store import save, wide_console

SLOTS, CONTEXT = 4, 1024
NUM_WORDS, NUM_TOKENS = 32, 32
SHOWN = (TOKENS_PER_SECOND, BETWEEN_TOKENS)


@dataclass(frozen=True, slots=True)
class Way:
    """Engines with so many `threads` each run at once."""

    name: str
    threads: tuple[int, ...]


def ways_of(threads: int) -> tuple[tuple[Way, Way], ...]:
    """Pairs on a host with `threads`: shared at starts alone, and whenever engines come or go."""
    share = max(1, threads // 2)
    return (
        (
            Way("both run; the first one keeps all threads", (threads, share)),
            Way("both run; each has its share", (share, share)),
        ),
        (
            Way("the other one has ended; it keeps its share", (share,)),
            Way("the other one has ended; it has all threads", (threads,)),
        ),
    )


Figures = dict[str, list[dict[str, float]]]


async def measure(way: Way, model: Path, seed: int) -> dict[str, float]:
    """Of the tokens of all engines together. Raises `RequestsFailed`."""
    async with AsyncExitStack() as stack:
        sides = [
            await start_ours(stack, Load(model, SLOTS, CONTEXT, threads)) for threads in way.threads
        ]
        warm_up = prompts.uniform(-seed, SLOTS, num_words=8, num_tokens=2)
        for side in sides:
            check(await ways.continuous(side.client, warm_up, size=SLOTS))

        async def load(side: Side) -> list[Sample]:
            requests = prompts.uniform(seed, 2 * SLOTS, num_words=NUM_WORDS, num_tokens=NUM_TOKENS)
            return await ways.continuous(side.client, requests, size=SLOTS)

        found = await asyncio.gather(*map(load, sides))
        return of_burst([sample for samples in found for sample in samples])


async def run(model: Path, pairs: tuple[tuple[Way, Way], ...], rounds: int) -> Figures:
    """Each way's figures, a mapping each round. Raises `RequestsFailed`."""
    turn = [way for pair in pairs for way in pair]
    figures: Figures = {way.name: [] for way in turn}
    for number in range(1, rounds + 1):
        for way in turn:
            found = await measure(way, model, number)
            figures[way.name].append(found)
            words = ", ".join(f"{name} {shown(name, found[name])}" for name in SHOWN)
            print(f"{number}/{rounds} {way.name}: {words}", flush=True)
        turn = [*turn[1:], turn[0]]
    return figures


def show(figures: Figures, pairs: tuple[tuple[Way, Way], ...]) -> None:
    table = Table(title="Two models on one host: median (least to most) of the rounds")
    for name in ("way", *SHOWN, "tokens/s to the line above, in pairs"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for before, after in pairs:
        for way in (before, after):
            rounds = figures[way.name]
            cells = [_spread(name, [each[name] for each in rounds]) for name in SHOWN]
            ratio = "" if way is before else _ratios(figures[before.name], rounds)
            table.add_row(f"{way.name} {way.threads}", *cells, ratio)
    wide_console().print(table)


def _spread(name: str, values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{shown(name, median(values))} ({shown(name, low)} to {shown(name, high)})"


def _ratios(before: list[dict[str, float]], after: list[dict[str, float]]) -> str:
    pairs = zip(before, after, strict=True)
    found = [new[TOKENS_PER_SECOND] / old[TOKENS_PER_SECOND] for old, new in pairs]
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.shared_threads")
    parser.add_argument("--model", type=model_file, default=Q06.path, help="GGUF file")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="times each way is run")
    parser.add_argument(
        "--threads", type=at_least(2), default=max(2, default_threads()), help="those of the host"
    )
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    pairs = ways_of(arguments.threads)
    try:
        figures = uvloop.run(run(arguments.model, pairs, arguments.rounds))
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    show(figures, pairs)
    document = {
        "model": arguments.model.name,
        "ways": [asdict(way) for pair in pairs for way in pair],
        "figures": figures,
    }
    save("shared_threads", document)


if __name__ == "__main__":
    main()
