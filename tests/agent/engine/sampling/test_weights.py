"""Draws by weight, and the fewest tokens with a mass, against putting everything in order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.sampling.selection import Leaders, Row, tops_of
from arriero.agent.engine.sampling.weights import (
    BLOCK,
    LEADERS,
    Heaviest,
    Highest,
    NucleusWithin,
    Scratch,
    Weights,
    evens,
    exponentials,
    further,
)

SIZES = st.sampled_from([1, 2, 100, BLOCK, BLOCK + 1, 3000, 9000])


def weights_of(size: int, *, seed: int, scale: float = 1.0) -> Row:
    """Weights of any size; every third is nothing."""
    random = np.random.default_rng(seed)
    values = np.exp(scale * random.standard_normal(size)).astype(np.float32)
    values[random.permutation(size)[: size // 3]] = 0
    return values


@given(size=SIZES, seed=st.integers(0, 99), number=st.floats(0, 1), scale=st.floats(0, 5))
def test_the_token_that_reaches_a_mass(size: int, seed: int, number: float, scale: float) -> None:
    values = weights_of(size, seed=seed, scale=scale)
    weights = Weights(values)
    sums = values.astype(np.float64).cumsum()
    assert weights.total == pytest.approx(sums[-1], rel=1e-6)
    mass = number * weights.total
    token = weights.find(mass)
    assert values[token] > 0
    # As exactly as single precision has the sum.
    hair = 1e-6 * sums[-1]
    assert sums[token] - float(values[token]) - hair <= mass <= sums[token] + hair


def test_the_first_and_the_last_token_have_a_weight() -> None:
    values = np.array([0, 3, 0, 1, 0], np.float32)
    assert [Weights(values).find(mass) for mass in (0.0, 3.0, 3.001, 4.0, 5.0)] == [1, 1, 3, 3, 3]


def test_further_draws_are_even_too() -> None:
    numbers = [0.3]
    for _ in range(4000):
        numbers.append(further(numbers[-1]))
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert all(300 < count < 500 for count in counts)
    of_neighbours = [further(place / 4000) for place in range(4000)]
    counts, _ = np.histogram(of_neighbours, bins=10, range=(0, 1))
    assert all(300 < count < 500 for count in counts)
    assert 0 <= further(0.0) < 1 and 0 <= further(1.0) < 1


def test_only_some() -> None:
    weights = Weights(np.array([1, 2, 4], np.float32)).only(np.array([True, False, True]))
    assert weights.total == 5
    assert weights.find(1.5) == 2


def test_weights_of_a_row() -> None:
    row = np.array([2, 1, -np.inf, 2 - 8], np.float32)
    found = exponentials(row, row.max(), np.float32(2), Scratch().row("out", row.size))
    np.testing.assert_allclose(found / found[0], np.exp([0, -0.5, -np.inf, -4]), rtol=1e-6)


@pytest.mark.parametrize("top", [-1e30, -500, 0, 39, 41, 1e30])
@pytest.mark.parametrize("temperature", [1e-30, 0.1, 1, 100])
def test_weights_stay_in_range(top: float, temperature: float) -> None:
    row = np.array([top, top - 1, top, *[top * 2] * 9], np.float32)
    if top < 0:
        row[3:] = -np.inf
    best = row.max()
    with np.errstate(all="ignore"):
        weights = exponentials(row, best, np.float32(temperature), Scratch().row("out", row.size))
    assert np.isfinite(weights).all()
    assert weights.max() > 0
    assert np.flatnonzero(weights == weights.max()).size >= 1


def test_scratch_is_used_again() -> None:
    scratch = Scratch()
    first = scratch.row("a", 9)
    assert np.shares_memory(scratch.row("a", 9), first)
    assert not np.shares_memory(scratch.row("b", 9), first)
    assert scratch.row("a", 10).size == 10
    # The whole of it is there again after a shorter row.
    longer = scratch.row("a", 10)
    assert scratch.row("a", 3).size == 3
    assert np.shares_memory(scratch.row("a", 10), longer)


@given(
    size=st.sampled_from([1, 7, 2048, 2049, 6000, 30_000]),
    seed=st.integers(0, 99),
    scale=st.floats(0, 6),
    share=st.floats(0.01, 0.999),
    num_keys=st.sampled_from([1, 2, 50, 10**6]),
)
def test_the_fewest_with_a_mass(
    size: int, seed: int, scale: float, share: float, num_keys: int
) -> None:
    values = weights_of(size, seed=seed, scale=scale)
    keys = np.random.default_rng(seed).integers(num_keys, size=size).astype(np.float32)
    weights = Weights(values)
    if weights.total == 0:
        return
    prefix = Heaviest(keys, weights, share * weights.total)
    order = np.argsort(-keys, kind="stable")
    sums = values[order].astype(np.float64).cumsum()
    # Where the mass is reached to a hair, one more or less is as right.
    least, most = (sums.searchsorted(share * sums[-1] + hair * sums[-1]) for hair in (-1e-6, 1e-6))
    mask = prefix.mask()
    rank = int(np.count_nonzero(mask)) - 1
    assert least <= rank <= most
    assert set(np.flatnonzero(mask).tolist()) == set(order[: rank + 1].tolist())
    few = prefix.few()
    if few is None:
        assert size > 1024
    else:  # of equals in any order
        assert keys[few].tolist() == keys[order[: few.size]].tolist()
        *before, reached = values[few].astype(np.float64).cumsum()
        hair = 1e-6 * sums[-1]
        assert reached >= share * sums[-1] - hair
        assert not before or before[-1] < share * sums[-1] + hair
    for token in order[[0, rank // 2, rank]].tolist():
        before = set(np.flatnonzero(prefix.before(token)).tolist())
        assert before == set(order[: order.tolist().index(token)].tolist())
    for place in (0, least - 1, most + 1, size - 1):
        if not least <= place <= most and 0 <= place < size:
            assert prefix.includes(int(order[place])) == (place < least)


@given(
    size=st.sampled_from([5000, 30_000]),
    seed=st.integers(0, 99),
    scale=st.floats(0, 0.7),
    outer_share=st.floats(0.05, 0.99),
    share=st.floats(0.05, 0.99),
    places=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    first=st.sampled_from(["any", "the heaviest", "the lightest"]),
)
def test_a_nucleus_of_what_another_filter_left(
    size: int,
    seed: int,
    scale: float,
    outer_share: float,
    share: float,
    places: list[float],
    first: str,
) -> None:
    weights = Weights(weights_of(size, seed=seed, scale=scale))
    values = weights.values
    keys = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    if first != "any":
        keys = values.copy() if first == "the heaviest" else -values
    outer = Heaviest(keys, weights, outer_share * weights.total)
    nucleus = NucleusWithin(outer, share, float(values.max()))
    left = np.flatnonzero(Heaviest(keys, weights, outer_share * weights.total).mask())
    order = left[np.argsort(-values[left], kind="stable")]
    sums = values[order].astype(np.float64).cumsum()
    num_passing = int(sums.searchsorted(share * sums[-1])) + 1
    wanted = np.zeros(size, np.bool_)
    wanted[order[:num_passing]] = True
    edge = order[max(num_passing - 3, 0) : num_passing + 2]  # sums are rounded
    near_edge = np.isin(values, values[edge])
    tokens = {int(place * (size - 1)) for place in places}
    tokens |= {int(order[int(place * (order.size - 1))]) for place in places}
    tokens |= {int(token) for token in order[max(num_passing - 40, 0) : num_passing + 40 : 10]}
    for token in tokens:
        assert nucleus.includes(token) == wanted[token] or near_edge[token]
    assert (nucleus.mask() == wanted)[~near_edge].all()
    for token in tokens:
        assert nucleus.includes(token) == nucleus.mask()[token]
    ids = nucleus.some(size)
    if ids is not None:
        part = nucleus.among(ids)
        assert wanted[~near_edge].sum() == (wanted & ~near_edge)[ids].sum()
        assert (part.mask() == wanted[ids])[~near_edge[ids]].all()


def test_whether_a_nucleus_goes_below_a_weight() -> None:
    weights = Weights(weights_of(20_000, seed=1))
    prefix = Heaviest(weights.values, weights, 0.8 * weights.total)
    lowest = weights.values[prefix.mask()].min()
    assert prefix.goes_below(np.float32(lowest * 1.01))
    assert not prefix.goes_below(lowest)
    assert not prefix.goes_below(np.float32(lowest * 0.99))


@given(
    size=st.integers(1, 3000),
    seed=st.integers(0, 99),
    count=st.integers(1, 3000),
    num_keys=st.sampled_from([1, 3, 10**6]),
)
def test_the_highest(size: int, seed: int, count: int, num_keys: int) -> None:
    keys = np.random.default_rng(seed).integers(num_keys, size=size).astype(np.float32)
    count = min(count, size)
    prefix = Highest(keys, count)
    order = np.argsort(-keys, kind="stable")
    assert set(np.flatnonzero(prefix.mask()).tolist()) == set(order[:count].tolist())
    few = prefix.few()
    if count <= 2048:
        assert few is not None and keys[few].tolist() == keys[order[:count]].tolist()
    else:
        assert few is None
    some = prefix.some(size)
    if some is not None:
        assert set(order[:count].tolist()) <= set(some.tolist())
        assert some[prefix.among(some).mask()].tolist() == sorted(order[:count].tolist())
    for place in {0, count - 1, min(count, size - 1), size - 1}:
        assert prefix.includes(int(order[place])) == (place < count)


@given(
    size=st.sampled_from([1, 7, 3000, 30_000]),
    seed=st.integers(0, 99),
    scale=st.floats(0, 4),
    share=st.sampled_from([0.0001, 0.3, 0.9, 0.99, 0.9999999]),
    most=st.sampled_from([100, 3000, 30_000]),
    by_weight=st.booleans(),
)
def test_a_part_that_holds_the_fewest_with_a_mass(
    size: int, seed: int, scale: float, share: float, most: int, by_weight: bool
) -> None:
    weights = Weights(weights_of(size, seed=seed, scale=scale))
    if weights.total == 0:
        return
    keys = weights.values
    if not by_weight:
        keys = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    prefix = Heaviest(keys, weights, share * weights.total)
    ids = prefix.some(most)
    if ids is None:
        return
    wanted = np.flatnonzero(prefix.mask())
    assert set(wanted.tolist()) <= set(ids.tolist())
    part = prefix.among(ids)
    found = ids[part.mask()]
    # Of the sums that say where the edge is, other ones are rounded.
    differing = np.setxor1d(found, wanted)
    assert float(weights.values[differing].sum()) <= 2e-6 * weights.total
    for token in (ids[0], ids[-1], ids[keys[ids].argmax()], ids[keys[ids].argmin()]):
        if token not in differing:
            assert part.includes(int(np.flatnonzero(ids == token)[0])) == (token in wanted)


def test_a_small_nucleus_of_a_long_row_is_found_in_a_part_of_it() -> None:
    weights = Weights(weights_of(150_000, seed=1, scale=3))
    sizes = []
    for share in (0.9, 0.95, 0.99):
        prefix = Heaviest(weights.values, weights, share * weights.total)
        ids = prefix.some(weights.values.size)
        assert ids is not None
        num_passing = int(np.count_nonzero(prefix.mask()))
        assert num_passing <= ids.size <= 2 * num_passing
        assert prefix.some(num_passing // 2) is None
        sizes.append(num_passing)
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("floor", [-1.0, 0.5, 2.0, 9.0])
def test_what_is_below_a_floor_is_left_out_of_the_fewest(floor: float) -> None:
    weights = Weights(weights_of(5000, seed=2))
    whole = Heaviest(weights.values, weights, 0.9 * weights.total)
    prefix = Heaviest(weights.values, weights, 0.9 * weights.total, np.float32(floor))
    wanted = whole.mask() & (weights.values >= floor)
    assert prefix.mask().tolist() == wanted.tolist()
    for token in range(0, 5000, 97):
        assert prefix.includes(token) == wanted[token]
    ids = prefix.some(5000)
    assert ids is not None
    assert ids[prefix.among(ids).mask()].tolist() == np.flatnonzero(wanted).tolist()


def test_a_draw_of_a_prefix_never_leaves_it() -> None:
    values = weights_of(9000, seed=1)
    wanted = values.copy()
    order = np.argsort(-values, kind="stable")
    wanted[order[100:]] = 0
    wanted /= wanted.sum()
    counts = np.zeros(9000)
    num_draws = 1500
    for number in np.random.default_rng(3).random(num_draws):
        weights = Weights(values.copy())
        counts[weights.draw(float(number), Highest(values, 100))] += 1
    assert counts[wanted == 0].sum() == 0
    for group in np.array_split(order[:100], 5):
        share = wanted[group].sum()
        assert counts[group].sum() / num_draws == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize("power", [0.01, 0.5, 0.9, 1.2, 1.9, 2.0])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_a_draw_by_raised_weights(power: float, scale: float) -> None:
    """Each group of tokens comes as often as its weights are when all are raised."""
    values = weights_of(9000, seed=1, scale=scale)
    weights = Weights(values)
    prefix = Heaviest(values, weights, 0.9 * weights.total)
    wanted = np.where(prefix.mask(), values.astype(np.float64) ** power, 0)
    wanted /= wanted.sum()
    num_draws, tokens = 800, []
    for number in np.random.default_rng(3).random(num_draws):
        numbers = evens(float(number))
        token = None
        while token is None:
            token = weights.draw_raised(power, numbers, prefix)
        tokens.append(token)
    assert wanted[tokens].min() > 0
    for group in np.array_split(np.argsort(-values)[: np.count_nonzero(wanted)], 6):
        share = wanted[group].sum()
        spread = 4.5 * (share * (1 - share) / num_draws) ** 0.5
        assert np.isin(tokens, group).mean() == pytest.approx(share, abs=spread + 1e-4)


@pytest.mark.parametrize("lowest", [-20.0, -84.0, -200.0, -np.inf])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_weights_are_right_however_low_the_lowest_is(lowest: float, temperature: float) -> None:
    row = np.linspace(-19, 20, 5000, dtype=np.float32)
    row[::50] = lowest
    before = row.copy()
    with np.errstate(all="ignore"):
        found = exponentials(row, row.max(), np.float32(temperature), np.empty_like(row))
    assert row.tolist() == before.tolist()
    wide = before.astype(np.float64) / np.float32(temperature)
    wanted = np.exp(wide - wide.max())
    found = found / found.max()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-36)


def leaders_of(values: Row) -> Leaders:
    return Leaders(values, tops_of(values))


def test_a_draw_in_order() -> None:
    values = np.array([1, 5, 2, 0, 4], np.float32)
    leaders, weights = leaders_of(values), Weights(values)
    drawn = [weights.draw_sorted(n / 12 + 0.01, leaders) for n in range(12)]
    assert drawn == [1] * 5 + [4] * 4 + [2] * 2 + [0]
    drawn = [weights.draw_sorted(n / 7 + 0.01, leaders, 1) for n in range(7)]
    assert drawn == [4] * 4 + [2] * 2 + [0]
    assert weights.draw_sorted(0.0, leaders, 1) == 4


@pytest.mark.parametrize("num_dropped", [0, 3, 300])
@pytest.mark.parametrize("scale", [0.5, 1.5, 3.0])
def test_a_draw_of_many_begins_with_the_highest(scale: float, num_dropped: int) -> None:
    values = weights_of(9000, seed=1, scale=scale)
    order = np.argsort(-values)[num_dropped:]
    sums = values[order].astype(np.float64).cumsum()
    numbers = np.random.default_rng(3).random(2000)
    tokens = []
    for number in numbers:
        leaders = leaders_of(values)
        tokens.append(Weights(values.copy()).draw_sorted(float(number), leaders, num_dropped))
    wanted = order[sums.searchsorted(numbers * sums[-1])]
    is_first = np.isin(wanted, order[: max(LEADERS[0] - num_dropped, 1)])
    assert is_first.any()
    assert (wanted == tokens)[is_first].all()
    for group in np.array_split(order[: np.count_nonzero(values[order])], 20):
        share = values[group].sum() / sums[-1]
        spread = 4.5 * (share * (1 - share) / numbers.size) ** 0.5
        assert np.isin(tokens, group).mean() == pytest.approx(share, abs=spread + 1e-4)


def test_many_equals_are_drawn_evenly() -> None:
    values = np.ones(9000, np.float32)
    values[77] = 900
    numbers = (np.arange(500) + 0.5) / 500
    drawn = [Weights(values.copy()).draw_sorted(n, leaders_of(values)) for n in numbers]
    assert 40 <= drawn.count(77) <= 60
    assert len(set(drawn)) > 400
    values[77] = 1
    drawn = [Weights(values.copy()).draw_sorted(n, leaders_of(values)) for n in numbers]
    assert len(set(drawn)) == 500


def test_a_draw_that_is_rounded_beyond_the_last_is_the_last() -> None:
    values = np.zeros(9000, np.float32)
    values[[5, 700, 8000]] = (3, 2, 1)
    for number in (0.999, 1.0, 1.0000001):
        assert Weights(values.copy()).draw_sorted(number, leaders_of(values)) == 8000


@pytest.mark.parametrize("power", [1.1, 1.5, 4.0])
@pytest.mark.parametrize("scale", [1.5, 3.0])
@pytest.mark.parametrize("num_dropped", [0, 2])
def test_a_draw_in_order_by_raised_weights(power: float, scale: float, num_dropped: int) -> None:
    """Where it gives a token, all weights raised and in order give the same."""
    values = weights_of(9000, seed=2, scale=scale)
    order = np.argsort(-values)[num_dropped:]
    sums = (values[order].astype(np.float64) ** power).cumsum()
    weights, leaders = Weights(values), leaders_of(values)
    numbers = np.random.default_rng(4).random(300)
    found = [weights.draw_raised_sorted(power, n, leaders, num_dropped) for n in numbers.tolist()]
    wanted = order[sums.searchsorted(numbers * sums[-1])].tolist()
    assert all(token in (None, other) for token, other in zip(found, wanted, strict=True))
    if power == 4.0 and scale == 3.0:
        assert found.count(None) < 30
