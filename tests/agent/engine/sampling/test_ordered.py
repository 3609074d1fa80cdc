"""Samplers one after another; that llama.cpp's chain does the same is tested with the sampler."""

from typing import Any

import numpy as np
import pytest

from arriero.agent.engine.sampling.ordered import left_in_order
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.selection import Row

SHARES = np.array([0.5, 0.3, 0.15, 0.05])
"""The probabilities of four tokens."""


class Halving:
    """Takes a share off the first token."""

    def apply(self, row: Row) -> None:
        row[0] += np.float32(np.log(0.5))


def left(*samplers: str, draw: float = 0.0, **choices: Any) -> dict[int, float]:
    """The probability of each token that is left."""
    sampling = Sampling(seed=1, samplers=samplers, **choices)
    row = np.log(SHARES).astype(np.float32)
    ids, logits = left_in_order(row, sampling, {"penalties": Halving()}, lambda: draw)
    weights = np.exp(logits)
    return dict(zip(ids.tolist(), (weights / weights.sum()).tolist(), strict=True))


@pytest.mark.parametrize(
    ("samplers", "choices", "ids"),
    [
        (("top_k", "top_p"), {"top_k": 2, "top_p": 0.6}, {0}),
        (("top_p", "top_k"), {"top_k": 2, "top_p": 0.6}, {0, 1}),
        (("temperature", "min_p"), {"temperature": 0.5, "min_p": 0.2}, {0, 1}),
        (("min_p", "temperature"), {"temperature": 0.5, "min_p": 0.2}, {0, 1, 2}),
        (("penalties", "top_k"), {"top_k": 1}, {1}),
        (("top_k", "penalties"), {"top_k": 1}, {0}),
        (("temperature", "penalties"), {"temperature": 0.0}, {0}),
        (("penalties", "temperature"), {"temperature": 0.0}, {1}),
        (("xtc", "top_k"), {"xtc_probability": 1.0, "xtc_threshold": 0.2, "top_k": 2}, {1, 2}),
        (("top_k", "xtc"), {"xtc_probability": 1.0, "xtc_threshold": 0.2, "top_k": 2}, {1}),
        (("top_n_sigma",), {"top_n_sigma": 1.0}, {0, 1}),
        (("typ_p",), {"typical_p": 0.2}, {1}),
    ],
)
def test_each_sees_what_the_one_before_left(
    samplers: tuple[str, ...], choices: dict[str, Any], ids: set[int]
) -> None:
    assert left(*samplers, **choices).keys() == ids


def test_what_is_left_has_its_probabilities() -> None:
    assert left("temperature", "top_k", temperature=0.5, top_k=2) == pytest.approx(
        {0: 0.25 / 0.34, 1: 0.09 / 0.34}
    )
    assert left("top_k", "penalties", top_k=2) == pytest.approx({0: 0.25 / 0.55, 1: 0.3 / 0.55})


def test_xtc_has_a_chance() -> None:
    choices = {"xtc_probability": 0.5, "xtc_threshold": 0.2}
    assert left("xtc", draw=0.6, **choices).keys() == {0, 1, 2, 3}
    assert left("top_k", "xtc", top_k=1, **choices).keys() == {0}
