"""Arriero against a former checkout of itself: `python -m bench.against_former FOLDER`.

FOLDER is another work tree of the project with an environment of its own (`git worktree add`, then
`scripts/install` there). Both serve the same model with the same slots, context and threads, and
are asked the same things in turn; every other round in the other order. Ratios are this checkout
to the former one.
"""

import argparse
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import uvloop
from rich.table import Table

from bench import prompts, ways
from bench.arguments import at_least
from bench.figures import RequestsFailed, check, median_of, ratio, shown
from bench.models import made
from bench.scenarios import SCENARIOS, SLOTS, Scenario
from bench.sides import Load, start_ours
from bench.store import save, wide_console

WARM = tuple(name for name, scenario in SCENARIOS.items() if not scenario.starts_cold)

Rounds = list[dict[str, float]]


async def run(scenario: Scenario, former: Path, *, rounds: int, threads: int) -> dict[str, Rounds]:
    """The figures of each round, for `now` and `former`. Raises `RequestsFailed`."""
    load = Load(made(scenario.model), SLOTS, scenario.context_size, threads)
    figures: dict[str, Rounds] = {"now": [], "former": []}
    async with AsyncExitStack() as stack:
        sides = {
            "now": await start_ours(stack, load),
            "former": await start_ours(stack, load, programs=former / ".venv" / "bin"),
        }
        for side in sides.values():
            requests = prompts.uniform(0, SLOTS, num_words=64, num_tokens=8)
            check(await ways.continuous(side.client, requests, size=SLOTS))
        for number in range(1, rounds + 1):
            for name in sides if number % 2 else reversed(sides):
                figures[name].append(await scenario.measure(sides[name].client, number))
            print(f"{scenario.name} {number}/{rounds}: {_line(figures)}", flush=True)
    return figures


def _line(figures: dict[str, Rounds]) -> str:
    now, former = figures["now"][-1], figures["former"][-1]
    return ", ".join(
        f"{name} {shown(name, now[name])} : {shown(name, former[name])}" for name in now
    )


def show(outcomes: dict[str, dict[str, Rounds]]) -> None:
    table = Table(title="Now against former; ratios: median (least to most) of the rounds")
    for heading in ("work", "figure", "now", "former", "ratio"):
        table.add_column(heading, justify="left" if heading in ("work", "figure") else "right")
    for scenario, figures in outcomes.items():
        for name in figures["now"][0]:
            medians = [shown(name, median_of(figures[side], name)) for side in ("now", "former")]
            against = ratio(figures["now"], figures["former"], name)
            table.add_row(scenario, name, *medians, str(against))
        table.add_section()
    wide_console().print(table)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.against_former")
    parser.add_argument("former", type=Path, help="the other checkout")
    parser.add_argument(
        "--scenario", action="append", choices=WARM, help="what to run, repeatable; all without it"
    )
    parser.add_argument("--rounds", type=at_least(1), default=5, help="times both sides are run")
    parser.add_argument(
        "--threads", type=at_least(1), default=os.cpu_count() or 1, help="threads of each engine"
    )
    return parser.parse_args(arguments)


async def run_all(arguments: argparse.Namespace) -> dict[str, dict[str, Rounds]]:
    outcomes = {}
    for name in dict.fromkeys(arguments.scenario or WARM):
        outcomes[name] = await run(
            SCENARIOS[name],
            arguments.former,
            rounds=arguments.rounds,
            threads=arguments.threads,
        )
    return outcomes


def main() -> None:
    arguments = parse(sys.argv[1:])
    if not (arguments.former / ".venv" / "bin" / "balancer").exists():
        raise SystemExit(f"bench: {arguments.former} has no environment; run scripts/install there")
    try:
        outcomes = uvloop.run(run_all(arguments))
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    show(outcomes)
    document = {
        "rounds": outcomes,
        "ratios": {
            name: {
                figure: asdict(ratio(each["now"], each["former"], figure))
                for figure in each["now"][0]
            }
            for name, each in outcomes.items()
        },
    }
    save("against_former", document)


if __name__ == "__main__":
    main()
