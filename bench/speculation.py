"""`python -m bench.speculation`: speculative decoding against none.

Two balancers with an agent each serve the demo model, one agent with `--speculate`. What is asked
has two kinds: *again* repeats a question that was answered in the same conversation, so that the
answer can be guessed from the one before; *new* asks it for the first time, and there is nothing to
guess from. A round runs all of it on both sides in turn, every other round the other side first.
Ratios are taken within rounds.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import uvloop
from rich.table import Table

from bench import ways
from bench.arguments import at_least
from bench.client import Client
from bench.dialects import Request
from bench.figures import (
    FIRST_TOKEN,
    TOKENS_PER_SECOND,
    RequestsFailed,
    median_of,
    of_burst,
    ratio,
    shown,
)
from bench.sides import Load, start_ours
from bench.store import save, wide_console
from demo.conversations import TEMPLATE, Conversation, load_conversations
from demo.prompts import compile_template, render
from integration_tests.daemons import MODEL

KINDS = ("again", "new")
SIZES = (1, 8)
NUM_TOKENS = 128
CONTEXT_SIZE = 1024
NUM_REQUESTS = 8

Round = dict[str, dict[str, dict[str, float]]]
"""Figures by what was asked, and by side: `with`, `without`."""


@dataclass(frozen=True, slots=True)
class Work:
    """A number of requests of one kind at once."""

    kind: str
    size: int

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.size} at once"


WORK = tuple(Work(kind, size) for kind in KINDS for size in SIZES)


def requests(kind: str, number: int) -> list[Request]:
    """What a round asks: long answers, others in each of the first rounds."""
    template = compile_template(TEMPLATE.read_text())
    long = [one for one in load_conversations() if one.id.startswith("long-")]
    first = (number * NUM_REQUESTS) % len(long)
    chosen = (long + long)[first : first + NUM_REQUESTS]
    return [Request(render(template, _messages(kind, one)), NUM_TOKENS) for one in chosen]


def _messages(kind: str, conversation: Conversation) -> list[dict[str, Any]]:
    question = list(conversation.prompt_messages)
    if kind == "new":
        return question
    return [*question, conversation.answer_message, *question]


async def run_round(sides: dict[str, Client], number: int) -> Round:
    """Everything once on both sides. Raises `RequestsFailed`."""
    order = list(sides) if number % 2 else list(reversed(sides))
    figures: Round = {}
    for work in WORK:
        asked = requests(work.kind, number)
        figures[work.name] = {
            side: of_burst(await ways.continuous(sides[side], asked, size=work.size))
            for side in order
        }
    return figures


async def run(arguments: argparse.Namespace) -> list[Round]:
    load = Load(MODEL, max(SIZES), CONTEXT_SIZE, arguments.threads)
    async with AsyncExitStack() as stack:
        sides = {
            "with": (await start_ours(stack, load, speculate=arguments.speculate)).client,
            "without": (await start_ours(stack, load)).client,
        }
        await run_round(sides, 0)  # warms up, and shows early when requests fail
        rounds = []
        for number in range(1, arguments.rounds + 1):
            rounds.append(await run_round(sides, number))
            print(f"round {number} of {arguments.rounds} is done", flush=True)
        return rounds


def rows(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """One row for each kind of work: medians of both sides, and their ratio."""
    return [_row(work, rounds) for work in WORK]


def _row(work: Work, rounds: Sequence[Round]) -> dict[str, Any]:
    own, other = ([figures[work.name][side] for figures in rounds] for side in ("with", "without"))
    return {
        "asked": work.name,
        "with": median_of(own, TOKENS_PER_SECOND),
        "without": median_of(other, TOKENS_PER_SECOND),
        "throughput": str(ratio(own, other, TOKENS_PER_SECOND)),
        "first token": str(ratio(own, other, FIRST_TOKEN)),
    }


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="Guessing ahead against not; ratios: median (least to most)")
    table.add_column("asked")
    for heading in ("tokens per second", "without guesses", "throughput", "first token"):
        table.add_column(heading, justify="right")
    for row in rows:
        speeds = (shown(TOKENS_PER_SECOND, row[side]) for side in ("with", "without"))
        table.add_row(row["asked"], *speeds, row["throughput"], row["first token"])
    wide_console().print(table)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.speculation")
    parser.add_argument(
        "--speculate", type=at_least(1), default=8, help="the agent's setting of that name"
    )
    parser.add_argument("--rounds", type=at_least(1), default=4, help="times all of it is asked")
    parser.add_argument(
        "--threads", type=at_least(1), default=os.cpu_count() or 1, help="threads of each engine"
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
    settings = {"speculate": arguments.speculate, "threads": arguments.threads}
    save("speculation", {**settings, "rows": table, "rounds": rounds})


if __name__ == "__main__":
    main()
