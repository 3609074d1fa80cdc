"""What a token's choice costs: processor time a row of logits, by settings and by kind of row.

There are three kinds of rows: probabilities that fall steeply by rank, as most of a trained model's
do, less steeply, as where an answer may begin in many ways, and logits of one normal distribution,
as of random weights: there a nucleus has most of the vocabulary. With `--slots` a step has several
rows, each with a sampler of its own, as the agent's decode thread finds them.
"""

from collections.abc import Mapping
from statistics import median
from time import thread_time_ns
from typing import Any

import numpy as np

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.dry import Dry
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.selection import Row
from arriero.agent.engine.sampling.weights import Scratch
from arriero.agent.engine.sequence import NewSequence, SequenceId
from bench.harness import Flags, at_least, print_table, save

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


class BenchVocab:
    """As much of a vocabulary as a sampler asks for."""

    end_tokens = frozenset({2})
    suppressed_tokens: frozenset[int] = frozenset()

    def __init__(self, size: int) -> None:
        self.size = size


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
) -> float:
    """Processor seconds of a choice, the median over steps."""
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=Prompt(tuple(range(40, 300)) * 2),
        max_tokens=None,
        sampling=Sampling(**{"seed": 1, **choices}),
    )
    vocab: Any = BenchVocab(rows[0].size)
    scratch = Scratch()
    samplers = [Sampler(sequence, vocab, scratch=scratch) for _ in range(num_slots)]
    times: list[float] = []
    buffer = np.empty((num_slots, rows[0].size), np.float32)  # as llama.cpp has for a step
    with np.errstate(all="ignore"):
        for number in range(num_rounds * len(rows) + 1):
            for slot, into in enumerate(buffer):
                np.copyto(into, rows[(number + slot) % len(rows)])
            start = thread_time_ns()
            for sampler, row in zip(samplers, buffer, strict=True):
                sampler.choose(row)
            times.append((thread_time_ns() - start) / num_slots)
    return median(times[1:]) / 1e9  # the first one warms up


def main() -> None:
    flags = Flags("sampling", __doc__)
    flags.rounds(3)
    flags.add_argument("--rows", type=at_least(1), default=9, help="of each kind (9)")
    flags.add_argument("--vocab", type=at_least(100), default=151_936, help="logits a row")
    flags.add_argument("--slots", type=at_least(1), default=1, help="rows of a step (1)")
    flags.add_argument("--only", default="", help="settings with this in their names")
    given = flags.parse_args()
    kinds = {kind: rows_of(kind, given.vocab, given.rows) for kind in KINDS}
    costs = {
        name: {
            kind: cost_of(choices, rows, num_slots=given.slots, num_rounds=given.rounds)
            for kind, rows in kinds.items()
        }
        for name, choices in SETTINGS.items()
        if given.only in name
    }
    rows = ([name, *(f"{each * 1e6:,.0f}" for each in by.values())] for name, by in costs.items())
    print_table("Processor time of a row, µs", ("settings", *kinds), rows)
    save("sampling", {"given": vars(given), "seconds a row": costs})


if __name__ == "__main__":
    main()
