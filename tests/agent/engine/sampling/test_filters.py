"""Which tokens pass the filters, against the plainest way to say it: sort everything."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.sampling.filters import (
    GLANCES,
    Row,
    _contenders,
    candidates,
    highest,
    most_typical,
    within_deviations,
    without_top_choices,
)
from arriero.agent.engine.sampling.sampling import Sampling


def row_of(size: int, *, scale: float = 1.0, seed: int = 0) -> Row:
    """Logits without equals, in random order."""
    spread = np.random.default_rng(seed).permutation(size).astype(np.float32) / size
    return np.asarray(np.log(spread + 1e-9) * scale, np.float32)


def passing(row: Row, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> list[int]:
    ids = candidates(row, Sampling(seed=0, top_k=top_k, top_p=top_p, min_p=min_p))
    return list(range(row.size)) if ids is None else ids.tolist()


def sorted_and_cut(row: Row, *, top_k: int, top_p: float, min_p: float) -> list[int]:
    """What llama.cpp's samplers do, one after the other."""
    order = sorted(range(row.size), key=lambda id: -row[id])
    order = order[:top_k] if top_k else order
    top = float(row[order[0]])
    weights = [math.exp(float(row[id]) - top) for id in order]
    total, gathered, kept = sum(weights), 0.0, 0
    for weight in weights:
        gathered, kept = gathered + weight, kept + 1
        if top_p < 1 and gathered >= top_p * total:
            break
    return [id for id in order[:kept] if not min_p or row[id] >= top + math.log(min_p)]


SIZES = st.integers(1, 3000)


@given(size=SIZES, seed=st.integers(0, 99), count=st.integers(1, 3000))
def test_the_highest_in_order(size: int, seed: int, count: int) -> None:
    row = row_of(size, seed=seed)
    count = min(count, size)
    assert highest(row, count).tolist() == np.argsort(-row)[:count].tolist()


@pytest.mark.parametrize("size", [31, 32, 33, 63, 1000, 2047, 32_001])
@pytest.mark.parametrize("place", ["start", "end", "one column", "spread"])
def test_the_highest_wherever_they_are(size: int, place: str) -> None:
    row = np.full(size, -5, np.float32)
    width = max(size // 32, 1)
    ids = {
        "start": np.arange(8),
        "end": np.arange(size - 8, size),
        "one column": np.arange(0, size, width)[:8],
        "spread": np.linspace(0, size - 1, 8).astype(int),
    }[place]
    row[ids] = np.arange(8)
    assert highest(row, 8).tolist() == ids[::-1].tolist()


@pytest.mark.parametrize("size", [40, 1000, 32_001])
@pytest.mark.parametrize("num_allowed", [1, 3, 7, 8, 9, 30])
def test_what_is_ruled_out_is_not_put_in_order(size: int, num_allowed: int) -> None:
    """A constraint leaves a few tokens; then no more than was asked for is looked at."""
    draw = np.random.default_rng(num_allowed)
    allowed = draw.choice(size, num_allowed, replace=False)
    row = np.full(size, -np.inf, np.float32)
    row[allowed] = np.arange(num_allowed)
    assert 8 <= len(_contenders(row, 8)) <= max(8, num_allowed)
    found = highest(row, 8).tolist()
    best = allowed[::-1][:8].tolist()
    assert found[: len(best)] == best
    assert len(set(found)) == 8


@pytest.mark.parametrize("size", [7, 40, 5000])
def test_equals_are_as_good_as_each_other(size: int) -> None:
    row = np.zeros(size, np.float32)
    for count in (1, 3, size):
        assert len(set(highest(row, count).tolist())) == count
    row[3] = -np.inf
    assert 3 not in highest(row, size - 1)
    assert highest(np.full(size, -np.inf, np.float32), 2).size == 2


@given(
    size=SIZES,
    seed=st.integers(0, 99),
    scale=st.floats(0.1, 20),
    top_k=st.sampled_from([0, 1, 2, 40, 200, 5000]),
    top_p=st.sampled_from([1e-6, 0.5, 0.9, 0.95, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]),
)
def test_the_same_pass_as_when_everything_is_sorted(
    size: int, seed: int, scale: float, top_k: int, top_p: float, min_p: float
) -> None:
    row = row_of(size, scale=scale, seed=seed)
    filters = {"top_k": top_k if top_k < size else 0, "top_p": top_p, "min_p": min_p}
    found, wanted = passing(row, **filters), sorted_and_cut(row, **filters)
    # At the very edge sums of floats may differ: by one token, of hardly any weight.
    assert abs(len(found) - len(wanted)) <= (size > 1 and top_p < 1)
    least = min(len(found), len(wanted))
    if filters["top_k"] or top_p < 1:
        assert found[:least] == wanted[:least]
    else:
        assert found == sorted(wanted)


def test_a_nucleus_of_any_size() -> None:
    row = row_of(20_000, scale=0.01)
    sizes = [len(passing(row, top_p=top_p)) for top_p in (0.001, 0.2, 0.9)]
    assert sizes[0] < GLANCES[0] < sizes[1] < GLANCES[1] < sizes[2] < row.size


def test_without_filters_all_pass() -> None:
    assert candidates(row_of(100), Sampling(seed=0, top_k=0, top_p=1, min_p=0)) is None
    assert len(passing(row_of(100), top_k=100)) == 100


def test_forbidden_tokens_pass_only_where_nothing_filters() -> None:
    row = row_of(1000)
    row[500:] = -np.inf
    assert max(passing(row, top_p=0.999999)) < 500
    assert max(passing(row, min_p=1e-6)) < 500


def plainly_typical(logits: Row, mass: float) -> list[int]:
    """The definition, in double precision and one token after the other."""
    weights = [math.exp(float(logit - logits.max())) for logit in logits]
    probabilities = [weight / sum(weights) for weight in weights]
    expected = -sum(p * math.log(p) for p in probabilities if p > 0)
    surprise = [math.inf if p == 0 else -math.log(p) for p in probabilities]
    order = sorted(range(len(weights)), key=lambda place: abs(surprise[place] - expected))
    gathered, kept = 0.0, 0
    for place in order:
        gathered, kept = gathered + probabilities[place], kept + 1
        if gathered > mass:
            break
    return order[:kept]


@given(
    size=st.integers(1, 3000),
    seed=st.integers(0, 99),
    scale=st.floats(0.1, 8),
    mass=st.sampled_from([0.05, 0.5, 0.9, 0.99]),
    is_cut=st.booleans(),
)
def test_the_typical_are_those_nearest_to_the_expected_surprise(
    size: int, seed: int, scale: float, mass: float, is_cut: bool
) -> None:
    row = row_of(size, scale=scale, seed=seed)
    if is_cut:
        row[size // 2 + 1 :] = -np.inf
    found, wanted = most_typical(row, mass).tolist(), plainly_typical(row, mass)
    # Where two are as near as floats can tell, or the mass is reached to a hair, either is right.
    assert abs(len(found) - len(wanted)) <= 1 + size // 100
    assert len(set(found) ^ set(wanted)) <= 2 + size // 50
    assert len(set(found)) == len(found)


def test_outliers_do_not_pass() -> None:
    row = np.array([8.0, 9.0, 10.0, 1.0, -np.inf], np.float32)
    assert within_deviations(row, 0.5).tolist() == [1, 2]
    assert within_deviations(row, 100.0).tolist() == [0, 1, 2, 3]


def test_of_the_top_choices_the_last_is_left() -> None:
    row = np.log(np.array([0.3, 0.05, 0.4, 0.2, 0.05], np.float32))
    assert without_top_choices(row, None, 0.15).tolist() == [3, 1, 4]
    assert without_top_choices(row, np.array([2, 1]), 0.15).tolist() == [2, 1]
    assert without_top_choices(row, None, 0.5).tolist() == [2, 0, 3, 1, 4]
    assert without_top_choices(row, None, 0.0).tolist() == [4]
