"""Tokens drawn from a row of a real model have the distribution that the filters are defined by.

Chi-square over 2,000 draws for each filter, penalty and way to draw.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arriero.agent.engine.llama.loading import choose_kernels
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Dry, Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId
from integration_tests.bare_loop import BareLoop
from integration_tests.installed import real_model
from tests.agent.engine.fake_engine import FakeVocab

NUM_DRAWS = 2000

PROMPT = "My name is Anna and I like the sea. My name is Tom and I like the"
"""It repeats itself, and may go on in many ways."""

SEA, BEACH = 3426, 10724
"""Likely ones."""

PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "temperature alone": PLAIN,
    "high temperature": PLAIN | {"temperature": 1.4},
    "top_k": PLAIN | {"top_k": 20},
    "top_p": PLAIN | {"temperature": 0.7, "top_p": 0.8},
    "min_p": PLAIN | {"min_p": 0.02},
    "typical_p": PLAIN | {"typical_p": 0.7},
    "top_n_sigma": PLAIN | {"temperature": 1.3, "top_n_sigma": 3.0},
    "xtc": PLAIN | {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    "repeat_penalty": PLAIN | {"repeat_penalty": 1.3},
    "presence and frequency": PLAIN | {"presence_penalty": 1.5, "frequency_penalty": 0.7},
    "dry": PLAIN | {"dry": Dry(multiplier=0.8)},
    "logit_bias": PLAIN | {"logit_bias": ((SEA, -1.0), (BEACH, 1.5))},
    "mirostat 1": {"temperature": 0.9, "mirostat": 1, "mirostat_tau": 5.0},
    "mirostat 2": {"temperature": 0.9, "mirostat": 2, "mirostat_tau": 5.0},
    "all filters": {"top_k": 200, "typical_p": 0.95, "top_p": 0.9, "xtc_probability": 0.3},
}

Logits = NDArray[np.float64]


class Vocab(FakeVocab):
    end_tokens = frozenset({2})
    suppressed_tokens = frozenset()

    def __init__(self, size: int) -> None:
        self.size = size


@pytest.fixture(scope="module")
def loop() -> BareLoop:
    return BareLoop(real_model("smollm2"), 128, repacks=choose_kernels("auto") == "all")


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_draws_have_the_exact_distribution(loop: BareLoop, settings: dict[str, Any]) -> None:
    """At one in 100,000; rare tokens count as one group."""
    row = loop.row(PROMPT)
    tokens = loop.tokens(PROMPT)
    wanted = exact(row, tokens, Sampling(seed=0, **settings)) * NUM_DRAWS
    counts = drawn(row, tokens, settings)
    assert not counts[wanted == 0].any()
    often = wanted >= 5
    groups = np.append(wanted[often], wanted[~often].sum())
    found = np.append(counts[often], counts[~often].sum())
    squares = ((found - groups) ** 2 / np.maximum(groups, 1)).sum()
    freedom = max(often.sum(), 1)
    # The cube root of chi-square is nearly normal (Wilson and Hilferty).
    spread = 2 / (9 * freedom)
    score = ((squares / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5
    assert score < 4.3, (squares, freedom)


def drawn(
    row: NDArray[np.float32], tokens: list[int], settings: dict[str, Any]
) -> NDArray[np.int_]:
    """How often each token is the first one of a new sequence."""
    vocab = Vocab(row.size)
    chosen = []
    with np.errstate(all="ignore"):
        for seed in np.random.default_rng(5).integers(2**32, size=NUM_DRAWS):
            new = NewSequence(
                id=SequenceId(1),
                prompt=Prompt(tuple(tokens)),
                max_tokens=None,
                sampling=Sampling(seed=int(seed), **settings),
            )
            chosen.append(Sampler(new, vocab).choose(row.copy()))
    return np.bincount(chosen, minlength=row.size)


# ---- by the definitions, in llama.cpp's order


def exact(row: NDArray[np.float32], tokens: list[int], sampling: Sampling) -> Logits:
    """The probability of each token."""
    logits = row.astype(np.float64)
    for token, bias in sampling.logit_bias:
        logits[token] += bias
    if sampling.mirostat:
        return mirostat(logits / sampling.temperature, sampling)
    penalise(logits, tokens, sampling)
    if sampling.dry is not None:
        penalise_repetitions(logits, tokens, sampling.dry)
    if sampling.top_n_sigma:
        logits[logits < logits.max() - sampling.top_n_sigma * logits.std()] = -np.inf
    if sampling.top_k:
        logits[logits < np.sort(logits)[-sampling.top_k]] = -np.inf
    if sampling.typical_p < 1:
        weights = probabilities(logits)
        with np.errstate(divide="ignore", invalid="ignore"):
            surprise = -np.log(weights)
            entropy = np.nansum(weights * surprise)
        keep(logits, np.argsort(np.abs(surprise - entropy), kind="stable"), sampling.typical_p)
    if sampling.top_p < 1:
        keep(logits, np.argsort(-logits, kind="stable"), sampling.top_p)
    weights = probabilities(logits)
    logits[weights < sampling.min_p * weights.max()] = -np.inf
    found = probabilities(logits / sampling.temperature)
    if not sampling.xtc_probability:
        return found
    above = np.flatnonzero(probabilities(logits) >= sampling.xtc_threshold)
    logits[above[np.argsort(-logits[above])][:-1]] = -np.inf
    without = probabilities(logits / sampling.temperature)
    return (1 - sampling.xtc_probability) * found + sampling.xtc_probability * without


def penalise(logits: Logits, tokens: list[int], sampling: Sampling) -> None:
    for token, count in Counter(tokens[-sampling.repeat_last_n :]).items():
        factor = sampling.repeat_penalty
        logits[token] = logits[token] * factor if logits[token] <= 0 else logits[token] / factor
        logits[token] -= count * sampling.frequency_penalty + sampling.presence_penalty


def penalise_repetitions(logits: Logits, tokens: list[int], dry: Dry) -> None:
    """DRY: how long is the longest run that ends the text and that a token followed before?"""
    tokens = tokens[-dry.penalty_last_n :]
    for token in set(tokens):
        lengths = [
            length
            for place, each in enumerate(tokens)
            for length in range(1, place + 1)
            if each == token and tokens[place - length : place] == tokens[-length:]
        ]
        if (longest := max(lengths, default=0)) >= dry.allowed_length:
            logits[token] -= dry.multiplier * dry.base ** (longest - dry.allowed_length)


def mirostat(logits: Logits, sampling: Sampling) -> Logits:
    """The first draw, which may be as surprising as twice `mirostat_tau`."""
    weights = probabilities(logits)
    order = np.argsort(-weights, kind="stable")
    most = 2 * sampling.mirostat_tau
    if sampling.mirostat == 2:
        count = np.count_nonzero(-np.log2(weights) <= most)
    else:
        best = weights[order[:100]]
        ranks = np.log(np.arange(2, 101) / np.arange(1, 100))
        power = (ranks * np.log(best[:-1] / best[1:])).sum() / (ranks**2).sum()
        excess = power - 1
        share = excess * 2**most / (1 - logits.size**-excess)
        count = int(share ** (1 / power))
    logits[order[max(int(count), 1) :]] = -np.inf
    return probabilities(logits)


def probabilities(logits: Logits) -> Logits:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def keep(logits: Logits, order: NDArray[np.intp], share: float) -> None:
    """Keep the first tokens of `order` that reach `share` together."""
    reached = np.cumsum(probabilities(logits)[order])
    logits[order[np.searchsorted(reached, share) + 1 :]] = -np.inf
