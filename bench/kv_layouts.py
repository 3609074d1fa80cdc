"""The two layouts of the KV cache beside each other: `python -m bench.kv_layouts`.

An agent with a stream for each slot, one with a cache for all, and llama-server serve the same
model and are asked the same things, in turn; each round begins with another of them. A ratio is the
median of the rounds' ratios.

With `--age N` each has answered N long prompts before, all different: its caches are as full, and
its cells as scattered, as those of a server that has run for long.
"""

import argparse
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict

import uvloop
from rich.table import Table

from bench import peer, prompts, ways
from bench.arguments import at_least
from bench.figures import RequestsFailed, check, median_of, ratio, shown
from bench.models import made
from bench.scenarios import SCENARIOS, SLOTS, Scenario
from bench.sides import Load, start_ours, start_theirs
from bench.store import save, wide_console

STREAMS, UNIFIED, THEIRS = "streams", "unified", "llama-server"

PAIRS = ((STREAMS, UNIFIED), (STREAMS, THEIRS), (UNIFIED, THEIRS))

_WARM_UP_SEED = 0
_AGING_SEED = -1

Figures = dict[str, list[dict[str, float]]]


async def run(scenario: Scenario, *, rounds: int, threads: int, age: int) -> Figures:
    """Each side's figures, a mapping each round. Raises `RequestsFailed`."""
    load = Load(made(scenario.model), SLOTS, scenario.context_size, threads)
    figures: Figures = {STREAMS: [], UNIFIED: [], THEIRS: []}
    async with AsyncExitStack() as stack:
        sides = {
            STREAMS: await start_ours(stack, load, kv_layout=STREAMS),
            UNIFIED: await start_ours(stack, load, kv_layout=UNIFIED),
            THEIRS: await start_theirs(stack, load),
        }
        for side in sides.values():
            requests = prompts.uniform(_WARM_UP_SEED, SLOTS, num_words=64, num_tokens=8)
            requests += prompts.uniform(_AGING_SEED, age, num_words=256, num_tokens=8)
            check(await ways.continuous(side.client, requests, size=SLOTS))
        names = list(sides)
        for number in range(1, rounds + 1):
            for name in names:
                figures[name].append(await scenario.measure(sides[name].client, number))
            names = [*names[1:], names[0]]
            print(f"{scenario.name} {number}/{rounds}: {_last(figures)}", flush=True)
    return figures


def _last(figures: Figures) -> str:
    """Each side's figures in the last round."""
    return "; ".join(
        f"{side} " + ", ".join(f"{name} {shown(name, value)}" for name, value in rounds[-1].items())
        for side, rounds in figures.items()
    )


def show(outcomes: dict[str, Figures]) -> None:
    table = Table(title="Layouts of the KV cache; ratios: median (least to most) of the rounds")
    pairs = [f"{one} / {other}" for one, other in PAIRS]
    for heading in ("work", "figure", STREAMS, UNIFIED, THEIRS, *pairs):
        table.add_column(heading, justify="left" if heading in ("work", "figure") else "right")
    for work, figures in outcomes.items():
        for name in figures[STREAMS][0]:
            medians = [shown(name, median_of(each, name)) for each in figures.values()]
            ratios = [str(ratio(figures[one], figures[other], name)) for one, other in PAIRS]
            table.add_row(work, name, *medians, *ratios)
        table.add_section()
    wide_console().print(table)


def document(outcomes: dict[str, Figures], arguments: argparse.Namespace) -> dict[str, object]:
    """All there is to know about the run."""
    ratios = {
        work: {
            f"{one} / {other}": {
                name: asdict(ratio(figures[one], figures[other], name)) for name in figures[one][0]
            }
            for one, other in PAIRS
        }
        for work, figures in outcomes.items()
    }
    return {
        "threads": arguments.threads,
        "slots": SLOTS,
        "rounds": arguments.rounds,
        "age": arguments.age,
        "figures": outcomes,
        "ratios": ratios,
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    warm = [name for name, scenario in SCENARIOS.items() if not scenario.starts_cold]
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.kv_layouts")
    parser.add_argument(
        "--scenario", action="append", choices=warm, help="what to run, repeatable; all without it"
    )
    parser.add_argument("--rounds", type=at_least(1), default=5, help="times each side is run")
    parser.add_argument(
        "--threads", type=at_least(1), default=os.cpu_count() or 1, help="threads of each engine"
    )
    parser.add_argument(
        "--age", type=at_least(0), default=0, help="long prompts that each answers before (0)"
    )
    arguments_ = parser.parse_args(arguments)
    arguments_.scenario = arguments_.scenario or warm
    return arguments_


async def run_all(arguments: argparse.Namespace) -> dict[str, Figures]:
    names = dict.fromkeys(arguments.scenario)
    size = {"rounds": arguments.rounds, "threads": arguments.threads, "age": arguments.age}
    return {name: await run(SCENARIOS[name], **size) for name in names}


def main() -> None:
    arguments = parse(sys.argv[1:])
    peer.built()
    try:
        outcomes = uvloop.run(run_all(arguments))
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    show(outcomes)
    save("kv_layouts", document(outcomes, arguments))


if __name__ == "__main__":
    main()
