"""Rows that are chosen together get the tokens that each gets alone."""

from typing import Any

import numpy as np
import pytest

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.selection import Row
from arriero.agent.engine.sampling.together import draw_together
from arriero.agent.engine.sequence import NewSequence, SequenceId
from tests.agent.engine.fake_engine import FakeVocab

CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"top_k": 1},
    {"top_k": 128, "top_p": 1.0, "min_p": 0.0},
    {"top_k": 20, "top_p": 0.5, "min_p": 0.2, "temperature": 0.3},
    {"top_k": 100, "top_p": 1.0, "min_p": 0.05, "temperature": 2.5},
    {"logit_bias": ((3, 2.0),), "min_tokens": 2},
)


class Vocab(FakeVocab):
    def __init__(self, size: int) -> None:
        self.size = size
        self.end_tokens = frozenset({2})
        self.suppressed_tokens = frozenset()


def sampler(seed: int, size: int, **choices: Any) -> Sampler:
    sampling = Sampling(**{"seed": seed, **choices})
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt((1, 2)), max_tokens=None, sampling=sampling
    )
    return Sampler(sequence, Vocab(size))


def together(samplers: list[Sampler], rows: Row) -> list[int | None]:
    with np.errstate(all="ignore"):
        for each, row in zip(samplers, rows, strict=True):
            each.change(row)
        cuts = [each.cut for each in samplers if each.cut is not None]
        return draw_together(rows, cuts, lambda index: samplers[index].draw())


def alone(samplers: list[Sampler], rows: Row) -> list[int]:
    with np.errstate(all="ignore"):
        return [each.choose(row) for each, row in zip(samplers, rows, strict=True)]


@pytest.mark.parametrize("size", [300, 4100, 49_152, 151_936])
def test_each_row_gets_the_token_that_it_gets_alone(size: int) -> None:
    random = np.random.default_rng(size)
    steep = -1.5 * np.log(1 + np.arange(size, dtype=np.float32))
    ours, others = (
        [sampler(seed, size, **each) for seed, each in enumerate(CHOICES)] for _ in range(2)
    )
    num_alone = 0
    for spread in (0.1, 1.0, 30.0):
        for _ in range(10):
            rows = random.permuted(np.tile(steep, (len(CHOICES), 1)), axis=1)
            rows = (rows + spread * random.standard_normal(rows.shape)).astype(np.float32)
            changed = rows.copy()
            tokens = together(ours, changed)
            num_alone += tokens.count(None)
            expected = alone(others, rows)
            for each, row, token, other in zip(ours, changed, tokens, expected, strict=True):
                with np.errstate(all="ignore"):
                    assert each.take(each.pick(row) if token is None else token) == other
    assert num_alone < 10, "equals are rare"


def broken(row: Row, by: str) -> None:
    match by:
        case "nan":
            row[77] = np.nan
        case "infinite":
            row[77] = np.inf
        case "ruled out":
            row[:] = -np.inf
        case "nearly all ruled out":
            row[5:] = -np.inf
        case "equals":
            row[[8, 99]] = row.max()
        case "all equal":
            row[:] = 1


@pytest.mark.parametrize(
    "by", ["nan", "infinite", "ruled out", "nearly all ruled out", "equals", "all equal"]
)
def test_a_row_that_is_not_certain_is_left_to_its_sampler(by: str) -> None:
    rows = np.random.default_rng(0).standard_normal((3, 6000)).astype(np.float32)
    broken(rows[1], by)
    samplers = [sampler(seed, 6000) for seed in range(3)]
    before, token, after = together(samplers, rows.copy())
    assert token is None
    expected = alone([sampler(seed, 6000) for seed in range(3)], rows.copy())
    with np.errstate(all="ignore"):
        assert samplers[1].pick(rows[1]) == expected[1], "its draw is not used up"
    if by != "all equal":
        assert (before, after) == (expected[0], expected[2])


@pytest.mark.parametrize(
    "choices",
    [
        {"temperature": 0.0},
        {"top_k": 0},
        {"top_k": 129},
        {"typical_p": 0.9},
        {"top_n_sigma": 1.0},
        {"xtc_probability": 0.5},
        {"mirostat": 2},
        {"top_log_probs": 0},
        {"dynatemp_range": 0.5},
    ],
)
def test_other_filters_choose_alone(choices: dict[str, Any]) -> None:
    assert sampler(1, 300, **choices).cut is None
