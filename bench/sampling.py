"""What a token's choice costs: processor time a row of logits, by settings and by kind of row.

Rows are chosen from by the agent's sampler and by the plain one (`bench.plain_sampling`) in
turn. There are three kinds of rows: probabilities that fall steeply by rank, as most of a trained
model's do, less steeply, as where an answer may begin in many ways, and logits of one normal
distribution, as of random weights: there a nucleus has most of the vocabulary. With `--slots` a
step has so many rows, each with a sampler of its own, as the agent's decode thread finds them.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from time import thread_time_ns
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.dry import Dry
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.selection import Row
from arriero.agent.engine.sampling.weights import Scratch
from arriero.agent.engine.sequence import NewSequence, SequenceId
from bench.arguments import at_least
from bench.plain_sampling import PlainSampler

ROUNDS = 3
"""In which either sampler has its turn."""

OPEN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""No filter at all."""

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "llama.cpp's defaults": {},
    "penalties and DRY": {
        "repeat_penalty": 1.1,
        "frequency_penalty": 0.2,
        "dry": Dry(multiplier=0.8),
    },
    "five log-probabilities": {"top_log_probs": 5},
    "temperature 1, no filter": OPEN,
    "temperature 0.7, no filter": OPEN | {"temperature": 0.7},
    "no filter, five log-probabilities": OPEN | {"top_log_probs": 5},
    "top-p 0.95": OPEN | {"top_p": 0.95},
    "top-p 0.95, temperature 0.7": OPEN | {"top_p": 0.95, "temperature": 0.7},
    "top-p 0.95, temperature 2": OPEN | {"top_p": 0.95, "temperature": 2.0},
    "top-p 0.95, temperature 1.3": OPEN | {"top_p": 0.95, "temperature": 1.3},
    "top-p 0.95, five log-probabilities": OPEN | {"top_p": 0.95, "top_log_probs": 5},
    "top-p 0.95, min-p 0.05": OPEN | {"top_p": 0.95, "min_p": 0.05},
    "min-p 0.05": OPEN | {"min_p": 0.05},
    "min-p 0.001": OPEN | {"min_p": 0.001},
    "top-k 1,000": OPEN | {"top_k": 1000},
    "top-k 20,000": OPEN | {"top_k": 20_000},
    "typical 0.9": OPEN | {"typical_p": 0.9},
    "typical 0.9, temperature 0.7": OPEN | {"typical_p": 0.9, "temperature": 0.7},
    "typical 0.9, top-p 0.9": OPEN | {"typical_p": 0.9, "top_p": 0.9},
    "top-n-sigma 1": OPEN | {"top_n_sigma": 1.0},
    "XTC": OPEN | {"xtc_probability": 1.0},
    "XTC, temperature 0.7": OPEN | {"xtc_probability": 1.0, "temperature": 0.7},
    "XTC, top-p 0.95": OPEN | {"xtc_probability": 1.0, "top_p": 0.95},
    "mirostat 1": OPEN | {"mirostat": 1},
    "mirostat 2": OPEN | {"mirostat": 2},
    "mirostat 2, tau 10": OPEN | {"mirostat": 2, "mirostat_tau": 10.0},
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a row, in seconds: medians over rows, or over steps."""

    plain: float
    own: float


class BenchVocab:
    """As much of a vocabulary as a sampler asks for."""

    end_tokens = frozenset({2})
    suppressed_tokens: frozenset[int] = frozenset()

    def __init__(self, size: int) -> None:
        self.size = size


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=at_least(1), default=9, help="of each kind (9)")
    parser.add_argument("--vocab", type=at_least(100), default=151_936, help="logits a row")
    parser.add_argument("--slots", type=at_least(1), default=1, help="rows of a step (1)")
    parser.add_argument("--rounds", type=at_least(1), default=ROUNDS, help=f"({ROUNDS})")
    parser.add_argument("--only", default="", help="settings with this in their names")
    arguments = parser.parse_args()
    kinds = {kind: rows_of(kind, arguments.vocab, arguments.rows) for kind in KINDS}
    table = Table("µs a row: plain, own", *(f"{kind}" for kind in kinds))
    for name, choices in SETTINGS.items():
        if arguments.only not in name:
            continue
        costs = (
            cost_of(choices, rows, num_slots=arguments.slots, num_rounds=arguments.rounds)
            for rows in kinds.values()
        )
        table.add_row(name, *(f"{cost.plain * 1e6:,.0f}  {cost.own * 1e6:,.0f}" for cost in costs))
    Console(width=120).print(table)
    return 0


KINDS = ("steep", "less steep", "flat")


def rows_of(kind: str, size: int, count: int) -> list[Row]:
    """Rows of one kind: the tokens in another order each time."""
    random = np.random.default_rng(7)
    exponent = {"steep": 1.5, "less steep": 1.3}.get(kind)
    rows = []
    for _ in range(count):
        row = random.standard_normal(size)
        if exponent is not None:
            row = 20 - exponent * np.log(random.permutation(size) + 1) + 0.1 * row
        rows.append(row.astype(np.float32))
    return rows


def cost_of(
    choices: Mapping[str, Any], rows: list[Row], *, num_slots: int, num_rounds: int
) -> Cost:
    """What a choice costs either sampler."""
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=Prompt(tuple(range(40, 300)) * 2),
        max_tokens=None,
        sampling=Sampling(**{"seed": 1, **choices}),
    )
    vocab: Any = BenchVocab(rows[0].size)
    scratch = Scratch()
    sides: dict[str, list[Sampler]] = {
        "plain": [PlainSampler(sequence, vocab) for _ in range(num_slots)],
        "own": [Sampler(sequence, vocab, scratch=scratch) for _ in range(num_slots)],
    }
    times: dict[str, list[float]] = {side: [] for side in sides}
    buffer = np.empty((num_slots, rows[0].size), np.float32)  # as llama.cpp has for a step
    with np.errstate(all="ignore"):
        for _ in range(num_rounds):
            for side, samplers in sides.items():
                for number in range(len(rows) + 1):
                    for slot, into in enumerate(buffer):
                        np.copyto(into, rows[(number + slot) % len(rows)])
                    start = thread_time_ns()
                    for sampler, row in zip(samplers, buffer, strict=True):
                        sampler.choose(row)
                    times[side].append((thread_time_ns() - start) / num_slots)
                del times[side][-len(rows) - 1]  # the first one warms up
    return Cost(*(median(taken) / 1e9 for taken in times.values()))


if __name__ == "__main__":
    sys.exit(main())
