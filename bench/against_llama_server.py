"""Arriero against llama.cpp's own llama-server: `python -m bench.against_llama_server`.

Both serve the same model with the same slots, context and threads and are asked the same things,
in turn. Our client goes through the balancer, theirs straight to the server. A round runs both
once, and every other round in the other order; a ratio is the median of the rounds' ratios.
"""

import argparse
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import uvloop
from rich.table import Table

from bench import peer, prompts, ways
from bench.arguments import at_least, model
from bench.figures import RequestsFailed, check, median_of, ratio, shown
from bench.models import made
from bench.scenarios import CROWDS, SCENARIOS, Scenario
from bench.sides import Load, Side, start_ours, start_theirs
from bench.store import save, wide_console

OURS, THEIRS = "arriero", "llama-server"
ALL = SCENARIOS | CROWDS

_WARM_UP_SEED = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both sides' figures, a mapping each round, and how they were started."""

    scenario: Scenario
    ours: list[dict[str, float]]
    theirs: list[dict[str, float]]
    commands: dict[str, list[str]]


async def run(scenario: Scenario, *, rounds: int, threads: int, repacks: bool = True) -> Outcome:
    """Starts both sides and takes the rounds. Raises `RequestsFailed`."""
    load = Load(made(scenario.model), scenario.slots, scenario.context_size, threads)
    outcome = Outcome(scenario, [], [], {})
    measure = _measure_cold if scenario.starts_cold else _measure_warm
    async for number in measure(load, outcome, rounds, repacks=repacks):
        _report_round(number, rounds, outcome)
    return outcome


async def _measure_warm(
    load: Load, outcome: Outcome, rounds: int, *, repacks: bool
) -> AsyncIterator[int]:
    """All rounds with the same servers, warmed up. The numbers of the rounds, as each is done."""
    async with AsyncExitStack() as stack:
        ours = await start_ours(stack, load)
        theirs = await start_theirs(stack, load, repacks=repacks)
        outcome.commands.update({OURS: ours.commands, THEIRS: theirs.commands})
        await _warm_up(ours, theirs, load.slots)
        for number in range(1, rounds + 1):
            turns = [(ours, outcome.ours), (theirs, outcome.theirs)]
            for side, figures in turns if number % 2 else reversed(turns):
                figures.append(await outcome.scenario.measure(side.client, number))
            yield number


async def _measure_cold(
    load: Load, outcome: Outcome, rounds: int, *, repacks: bool
) -> AsyncIterator[int]:
    """Each round with servers of its own, one after the other. See `_measure_warm`."""
    start = partial(start_theirs, repacks=repacks)
    turns = [(OURS, start_ours, outcome.ours), (THEIRS, start, outcome.theirs)]
    for number in range(1, rounds + 1):
        for name, start_side, figures in turns if number % 2 else reversed(turns):
            async with AsyncExitStack() as stack:
                side = await start_side(stack, load)
                outcome.commands[name] = side.commands
                figures.append(await outcome.scenario.measure(side.client, number))
        yield number


async def _warm_up(ours: Side, theirs: Side, slots: int) -> None:
    """Short requests; both sides must find the same number of tokens in the same prompts."""
    requests = prompts.uniform(_WARM_UP_SEED, slots, num_words=64, num_tokens=8)
    counts = []
    for side in (ours, theirs):
        samples = await ways.continuous(side.client, requests, size=slots)
        check(samples)
        counts.append(sorted(sample.num_prompt_tokens for sample in samples))
    if counts[0] != counts[1]:
        raise RequestsFailed(f"the prompts are not the same to both: {counts[0]}, {counts[1]}")


def _report_round(number: int, rounds: int, outcome: Outcome) -> None:
    pairs = (
        f"{name} {shown(name, outcome.ours[-1][name])} : {shown(name, theirs)}"
        for name, theirs in outcome.theirs[-1].items()
    )
    print(f"{outcome.scenario.name} {number}/{rounds}: {', '.join(pairs)}", flush=True)


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    """One row a figure that every round has."""
    names = [name for name in outcome.ours[0] if all(name in one for one in outcome.theirs)]
    return [_row(outcome, name) for name in names]


def _row(outcome: Outcome, name: str) -> dict[str, Any]:
    against = ratio(outcome.ours, outcome.theirs, name)
    goal = outcome.scenario.goals.get(name)
    return {
        "scenario": outcome.scenario.name,
        "model": outcome.scenario.model.name,
        "figure": name,
        "arriero": median_of(outcome.ours, name),
        "llama-server": median_of(outcome.theirs, name),
        "ratio": asdict(against),
        "ratio_text": str(against),
        "goal": None if goal is None else str(goal),
        "is_met": None if goal is None else goal.is_met(against.median),
    }


def show(outcomes: list[Outcome]) -> None:
    table = Table(
        title="Arriero against llama-server; ratios: median (least to most) of the rounds"
    )
    for heading in ("work", "figure", "arriero", "llama-server", "ratio", "to reach", ""):
        table.add_column(heading, justify="left" if heading in ("work", "figure") else "right")
    for outcome in outcomes:
        work = f"{outcome.scenario.name} ({outcome.scenario.model.name})"
        for row in rows(outcome):
            name = row["figure"]
            ours, theirs = shown(name, row["arriero"]), shown(name, row["llama-server"])
            met = {None: "", True: "yes", False: "no"}[row["is_met"]]
            table.add_row(work, name, ours, theirs, row["ratio_text"], row["goal"] or "", met)
            work = ""
        table.add_section()
    wide_console().print(table)


def document(outcomes: list[Outcome], arguments: argparse.Namespace) -> dict[str, Any]:
    """All there is to know about the run."""
    return {
        "versions": {
            "arriero": version("arriero"),
            "llama-cpp-python": version("llama-cpp-python"),
            "llama-server": peer.server_version(),
        },
        "peer_options": peer.options(),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "rows": [row for outcome in outcomes for row in rows(outcome)],
        "scenarios": [
            {
                "name": outcome.scenario.name,
                "work": outcome.scenario.work,
                "model": outcome.scenario.model.name,
                "slots": outcome.scenario.slots,
                "commands": outcome.commands,
                "arriero": outcome.ours,
                "llama-server": outcome.theirs,
            }
            for outcome in outcomes
        ],
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m bench.against_llama_server"
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=ALL,
        help="what to run, repeatable; without it all but those of many streams",
    )
    parser.add_argument(
        "--model",
        action="append",
        type=model,
        help="instead of a scenario's own, repeatable; smollm2 and gemma3-270m are real",
    )
    parser.add_argument("--rounds", type=at_least(1), default=5, help="times both sides are run")
    parser.add_argument(
        "--threads", type=at_least(1), default=os.cpu_count() or 1, help="threads of each engine"
    )
    parser.add_argument(
        "--no-repack",
        action="store_true",
        help="llama-server without kernels that repack weights, as its stock build has to run on "
        "processors with AMX",
    )
    return parser.parse_args(arguments)


async def run_all(arguments: argparse.Namespace) -> list[Outcome]:
    named = [ALL[name] for name in dict.fromkeys(arguments.scenario or SCENARIOS)]
    of_models = [replace(each, model=model) for model in arguments.model or () for each in named]
    return [
        await run(
            scenario,
            rounds=arguments.rounds,
            threads=arguments.threads,
            repacks=not arguments.no_repack,
        )
        for scenario in of_models or named
    ]


def main() -> None:
    arguments = parse(sys.argv[1:])
    peer.built()
    try:
        outcomes = uvloop.run(run_all(arguments))
    except RequestsFailed as error:
        raise SystemExit(f"bench: {error}") from error
    show(outcomes)
    save("against_llama_server", document(outcomes, arguments))


if __name__ == "__main__":
    main()
