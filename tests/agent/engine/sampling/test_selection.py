"""The highest logits, against putting the whole row in order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.sampling.selection import (
    Leaders,
    Row,
    contenders,
    folded,
    highest,
    highest_mask,
    reaching,
    tops_of,
)

SIZES = st.integers(1, 3000)


def row_of(size: int, *, seed: int = 0) -> Row:
    """Logits without equals, in random order."""
    return np.random.default_rng(seed).permutation(size).astype(np.float32)


@given(size=SIZES, seed=st.integers(0, 99), count=st.integers(1, 3000))
def test_the_highest_in_order(size: int, seed: int, count: int) -> None:
    row = row_of(size, seed=seed)
    count = min(count, size)
    assert highest(row, count).tolist() == np.argsort(-row)[:count].tolist()


@given(
    size=SIZES,
    seed=st.integers(0, 99),
    counts=st.lists(st.integers(1, 3000), min_size=1, max_size=3),
    num_equal=st.sampled_from([1, 2, 50, 3000]),
)
def test_leaders_are_higher_than_all_others(
    size: int, seed: int, counts: list[int], num_equal: int
) -> None:
    row = row_of(size, seed=seed) // num_equal
    leaders = Leaders(row, tops_of(row))
    for count in counts:
        ids = leaders.of(count)
        assert (np.diff(row[ids]) <= 0).all()
        assert np.unique(ids).size == ids.size
        others = np.delete(row, ids)
        assert not others.size or not ids.size or others.max() < row[ids[-1]]
        assert ids.size >= min(count, size) or num_equal == 3000


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
    assert 8 <= len(contenders(row, 8, None)) <= max(8, num_allowed)
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
    size=SIZES, seed=st.integers(0, 99), count=st.integers(1, 3000), num_values=st.integers(1, 9)
)
def test_of_equals_the_first_are_taken(size: int, seed: int, count: int, num_values: int) -> None:
    row = np.random.default_rng(seed).integers(num_values, size=size).astype(np.float32)
    count = min(count, size)
    wanted = np.argsort(-row, kind="stable")[:count]
    assert np.flatnonzero(highest_mask(row, count)).tolist() == sorted(wanted.tolist())
    assert row[highest(row, count)].tolist() == row[wanted].tolist()


@pytest.mark.parametrize("count", [1, 2, 700, 2500, 10_000, 25_000, 39_999, 40_000])
@pytest.mark.parametrize("place", ["anywhere", "where no sample looks", "few values", "ruled out"])
def test_the_highest_of_a_long_row(count: int, place: str) -> None:
    row = row_of(40_000, seed=1)
    if place == "where no sample looks":
        row[::39] = -1
    elif place == "few values":
        row %= 17
    elif place == "ruled out":
        row[row < 39_000] = -np.inf
    wanted = np.argsort(-row, kind="stable")[:count]
    assert np.flatnonzero(highest_mask(row, count)).tolist() == sorted(wanted.tolist())


def test_a_row_of_equals_is_not_put_in_order() -> None:
    assert highest(np.zeros(50_000, np.float32), 3).tolist() == [0, 1, 2]


@given(size=st.sampled_from([1, 100, 4095, 4096, 8191, 9000, 20_000]), seed=st.integers(0, 20))
def test_tops_are_of_all_columns_and_say_where_the_highest_are(size: int, seed: int) -> None:
    row = row_of(size, seed=seed)
    tops = tops_of(row)
    assert tops.max() == row.max()
    for bound in (row.max(), np.sort(row)[-min(size, 50)], np.float32(-1), np.float32(size)):
        found = reaching(row, tops, bound)
        assert sorted(found.tolist()) == np.flatnonzero(row >= bound).tolist()
    row[seed % size] = np.nan
    assert np.isnan(tops_of(row).max())


@given(size=st.integers(1, 20_000), seed=st.integers(0, 20), count=st.integers(1, 5000))
def test_of_folded_tops_each_is_one_column_s_or_more(size: int, seed: int, count: int) -> None:
    tops = tops_of(row_of(size, seed=seed))
    found = folded(tops, count)
    assert min(count, tops.size) <= found.size <= max(2 * count, tops.size % count + count)
    assert len(set(found.tolist())) == found.size
    assert set(found.tolist()) <= set(tops.tolist())
