"""What equal answers cost: `python -m bench.deterministic`.

An agent with `--deterministic` and the same agent without it are asked the same things, in turn;
each round begins with the other one. A ratio is the median of the rounds' ratios.
"""

import argparse
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict

import uvloop
from rich.table import Table

from bench import prompts, ways
from bench.arguments import at_least, model_file
from bench.client import Client
from bench.figures import TOKENS_PER_SECOND, RequestsFailed, check, median_of, ratio
from bench.sides import Load, start_ours
from bench.store import save, wide_console
from integration_tests.daemons import MODEL

EQUAL, PLAIN = "deterministic", "plain"
SLOTS, CONTEXT_SIZE = 8, 1024
PREFILL = "prompt tokens per second"

_WARM_UP_SEED = 0

Rounds = dict[str, list[dict[str, float]]]


async def streams(client: Client, seed: int, num: int, num_tokens: int) -> dict[str, float]:
    """Tokens a second of `num` answers at once, from the first token on."""
    requests = prompts.uniform(seed, num, num_words=16, num_tokens=num_tokens)
    samples = await ways.continuous(client, requests, size=num)
    check(samples)
    began = min(sample.token_times[0] for sample in samples)
    ended = max(sample.ended_at for sample in samples)
    return {TOKENS_PER_SECOND: sum(sample.num_tokens for sample in samples) / (ended - began)}


async def prefill(client: Client, seed: int) -> dict[str, float]:
    """The figures of one long prompt, until its first token."""
    (sample,) = await ways.continuous(
        client, prompts.uniform(seed, 1, num_words=300, num_tokens=2), size=1
    )
    check([sample])
    return {PREFILL: sample.num_prompt_tokens / sample.first_token}


async def measure(client: Client, seed: int, num_tokens: int) -> dict[str, dict[str, float]]:
    """A round of one side, by work."""
    return {
        "1 stream": await streams(client, 3 * seed, 1, num_tokens),
        "8 streams": await streams(client, 3 * seed + 1, SLOTS, num_tokens),
        "a prompt of 300 words": await prefill(client, 3 * seed + 2),
    }


async def run(arguments: argparse.Namespace) -> dict[str, Rounds]:
    """Each work's figures of each side. Raises `RequestsFailed`."""
    load = Load(arguments.model, SLOTS, CONTEXT_SIZE, arguments.threads)
    found: dict[str, Rounds] = {}
    async with AsyncExitStack() as stack:
        sides = {
            EQUAL: await start_ours(stack, load, deterministic="true"),
            PLAIN: await start_ours(stack, load),
        }
        for side in sides.values():
            await measure(side.client, _WARM_UP_SEED, arguments.tokens)
        names = list(sides)
        for number in range(1, arguments.rounds + 1):
            for name in names:
                figures = await measure(sides[name].client, number, arguments.tokens)
                for work, each in figures.items():
                    found.setdefault(work, {EQUAL: [], PLAIN: []})[name].append(each)
            names.reverse()
    return found


def show(found: dict[str, Rounds]) -> None:
    table = Table(title="Equal answers; ratios: median (least to most) of the rounds")
    for heading in ("work", "figure", EQUAL, PLAIN, f"{EQUAL} / {PLAIN}"):
        table.add_column(heading)
    for work, rounds in found.items():
        (name,) = rounds[EQUAL][0]
        medians = [f"{median_of(rounds[side], name):,.0f}" for side in (EQUAL, PLAIN)]
        table.add_row(work, name, *medians, str(ratio(rounds[EQUAL], rounds[PLAIN], name)))
    wide_console().print(table)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.deterministic")
    parser.add_argument(
        "--model", type=model_file, default=MODEL, help="GGUF file, or tiny or q06 by name"
    )
    parser.add_argument("--rounds", type=at_least(1), default=5, help="times each side is run")
    parser.add_argument("--tokens", type=at_least(2), default=96, help="tokens of an answer")
    parser.add_argument(
        "--threads", type=at_least(1), default=os.cpu_count() or 1, help="threads of each engine"
    )
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    try:
        found = uvloop.run(run(arguments))
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    show(found)
    ratios = {
        work: {name: asdict(ratio(rounds[EQUAL], rounds[PLAIN], name)) for name in rounds[EQUAL][0]}
        for work, rounds in found.items()
    }
    save(
        "deterministic",
        {"model": str(arguments.model), "threads": arguments.threads, "rounds": arguments.rounds}
        | {"figures": found, "ratios": ratios},
    )


if __name__ == "__main__":
    main()
