"""What passes the filters, and how likely it is: against the plainest way to say it.

Rows are long enough that many tokens are left, and nothing is put in order.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from arriero.agent.engine.sampling.filters import Pool
from arriero.agent.engine.sampling.selection import FEW, Row, tops_of
from arriero.agent.engine.sampling.weights import Scratch


@pytest.fixture(autouse=True)
def silenced() -> Iterator[None]:
    """As callers of `Pool` have to do."""
    with np.errstate(all="ignore"):
        yield


Probabilities = NDArray[np.float64]

ONE = np.float32(1)


def row_of(size: int, *, scale: float = 1.0, seed: int = 0) -> Row:
    return (scale * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


def pool_of(row: Row) -> Pool:
    return Pool(row.copy(), tops_of(row), Scratch())


# ---- the plainest way: everything in order, in double precision


class Plain:
    """Logits by token, and which are left, the highest first."""

    def __init__(self, row: Row) -> None:
        self.row = row.astype(np.float64)
        self.left = np.argsort(-self.row, kind="stable")

    @property
    def probabilities(self) -> Probabilities:
        weights = np.exp(self.row[self.left] - self.row[self.left].max())
        return np.asarray(weights / weights.sum())

    def keep_within_deviations(self, num_deviations: float) -> None:
        finite = self.row[np.isfinite(self.row)]
        self.left = self.left[self.row[self.left] >= finite.max() - num_deviations * finite.std()]

    def keep_highest(self, count: int) -> None:
        self.left = self.left[:count]

    def keep_typical(self, mass: float) -> None:
        probabilities = self.probabilities
        with np.errstate(divide="ignore", invalid="ignore"):
            surprises = -np.log(probabilities)
            expected = np.nansum(probabilities * surprises)
        order = np.argsort(np.abs(surprises - expected), kind="stable")
        sums = probabilities[order].cumsum()
        kept = order[: int(sums.searchsorted(mass, side="right")) + 1]
        self.left = self.left[np.sort(kept)]

    def keep_nucleus(self, mass: float, min_p: float = 0.0) -> None:
        self.left = self.left[: int(self.probabilities.cumsum().searchsorted(mass)) + 1]
        if min_p > 0:
            self.keep_likely(min_p)

    def keep_likely(self, min_p: float) -> None:
        logits = self.row[self.left]
        self.left = self.left[logits >= logits.max() + math.log(min_p)]

    def drop_top_choices(self, threshold: float) -> None:
        num_above = int(np.count_nonzero(self.probabilities >= threshold))
        self.left = self.left[max(num_above - 1, 0) :]

    def drawn(self, temperature: float) -> Probabilities:
        """The probability of each token."""
        logits = self.row[self.left]
        weights = np.exp((logits - logits.max()) / temperature)
        found = np.zeros(self.row.size)
        found[self.left] = weights / weights.sum()
        return found


Step = Callable[[Plain | Pool], None]

STEPS: dict[str, tuple[Step, ...]] = {
    "nothing": (),
    "sigma": (lambda pool: pool.keep_within_deviations(1.5),),
    "wide sigma": (lambda pool: pool.keep_within_deviations(3.5),),
    "top-k": (lambda pool: pool.keep_highest(100),),
    "wide top-k": (lambda pool: pool.keep_highest(4000),),
    "typical": (lambda pool: pool.keep_typical(0.3),),
    "wide typical": (lambda pool: pool.keep_typical(0.9),),
    "nucleus": (lambda pool: pool.keep_nucleus(0.1),),
    "half a nucleus": (lambda pool: pool.keep_nucleus(0.5),),
    "wide nucleus": (lambda pool: pool.keep_nucleus(0.95),),
    "min-p": (lambda pool: pool.keep_likely(0.3),),
    "wide min-p": (lambda pool: pool.keep_likely(0.001),),
    "nucleus and min-p": (lambda pool: pool.keep_nucleus(0.8, 0.2),),
    "nucleus and wide min-p": (lambda pool: pool.keep_nucleus(0.7, 0.002),),
    "nucleus less wide than min-p": (lambda pool: pool.keep_nucleus(0.4, 0.002),),
    "xtc": (lambda pool: pool.drop_top_choices(0.001),),
    "xtc of many": (lambda pool: pool.drop_top_choices(0.00005),),
    "xtc of nothing": (lambda pool: pool.drop_top_choices(0.9),),
    "wide nucleus and xtc": (
        lambda pool: pool.keep_nucleus(0.95),
        lambda pool: pool.drop_top_choices(0.0015),
    ),
    "all, wide": (
        lambda pool: pool.keep_within_deviations(5.5),
        lambda pool: pool.keep_highest(9000),
        lambda pool: pool.keep_typical(0.9),
        lambda pool: pool.keep_nucleus(0.9, 0.0001),
        lambda pool: pool.drop_top_choices(0.001),
    ),
    "typical and nucleus": (
        lambda pool: pool.keep_typical(0.5),
        lambda pool: pool.keep_nucleus(0.5),
    ),
    "wide typical and nucleus": (
        lambda pool: pool.keep_typical(0.9),
        lambda pool: pool.keep_nucleus(0.9),
    ),
}

NUM_DRAWS = 200


TEMPERATURES = [(0.1, 0.8), (1.0, 1.0), (4.0, 3.0)]


@pytest.mark.parametrize(("scale", "temperature"), TEMPERATURES)
@pytest.mark.parametrize("name", STEPS)
def test_each_token_is_as_likely_as_in_order(name: str, scale: float, temperature: float) -> None:
    """Even numbers between 0 and 1 are given, and groups of tokens counted."""
    size = 10_000
    row = row_of(size, scale=scale, seed=len(name))
    plain = Plain(row)
    for step in STEPS[name]:
        step(plain)
    wanted = plain.drawn(temperature)
    numbers = np.random.default_rng(1).permutation((np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS)
    counts = np.zeros(size)
    for number in numbers:
        pool = pool_of(row)
        for step in STEPS[name]:
            step(pool)
        counts[pool.draw(np.float32(temperature), float(number))] += 1
    # At an edge sums of floats may differ by one token.
    ranks = np.argsort(-row, kind="stable")
    near = np.zeros(size, np.bool_)
    left = np.sort(np.argsort(ranks)[plain.left])
    for edge in (left[0], left[-1]):
        near[ranks[max(edge - 2, 0) : edge + 3]] = True
    if "typical" not in name and "all" not in name:
        assert counts[(wanted == 0) & ~near].sum() == 0
    assert counts[wanted == 0].sum() <= 0.01 * NUM_DRAWS
    for group in np.array_split(ranks, 20):
        share = min(wanted[group].sum(), 1.0)  # sums are rounded
        spread = 4 * math.sqrt(share * (1 - share) / NUM_DRAWS) + 2 / NUM_DRAWS
        assert counts[group].sum() / NUM_DRAWS == pytest.approx(share, abs=spread)


@given(
    size=st.sampled_from([1, 2, 3000, 9000]),
    seed=st.integers(0, 99),
    scale=st.floats(0.1, 20),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    number=st.floats(0, 1, exclude_max=True),
    mass=st.sampled_from([1e-6, 0.5, 0.95, 0.999999]),
)
def test_in_a_steep_row_the_order_of_a_draw_is_that_of_the_logits(
    size: int, seed: int, scale: float, temperature: float, number: float, mass: float
) -> None:
    row = row_of(size, scale=scale, seed=seed)
    plain, pool = Plain(row), pool_of(row)
    plain.keep_nucleus(mass)
    pool.keep_nucleus(mass)
    if plain.left.size > 200:
        return
    sums = plain.drawn(temperature)[plain.left].cumsum()
    near = {
        int(plain.left[min(sums.searchsorted(number + hair), sums.size - 1)])
        for hair in (-1e-4, 0, 1e-4)
    }
    assert pool.draw(np.float32(temperature), number) in near


IN_ORDER = (
    ("sigma", "wide sigma"),
    ("top-k", "wide top-k"),
    ("typical", "wide typical"),
    ("nucleus", "half a nucleus", "wide nucleus", "min-p", "wide min-p", "nucleus and min-p"),
    ("xtc", "xtc of many", "xtc of nothing"),
)
CHAINS = st.tuples(*(st.sampled_from(("nothing", *names)) for names in IN_ORDER))


@given(
    names=CHAINS,
    size=st.sampled_from([2000, 9000, 30_000]),
    seed=st.integers(0, 99),
    scale=st.sampled_from([0.5, 2.0, 2.7, 3.5]),
    offset=st.sampled_from([0.0, -28.0, 33.0]),
    temperature=st.sampled_from([0.4, 0.7, 1.0, 1.3, 2.0]),
    numbers=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4),
)
def test_what_is_drawn_passed_every_filter(
    names: tuple[str, ...],
    size: int,
    seed: int,
    scale: float,
    offset: float,
    temperature: float,
    numbers: list[float],
) -> None:
    """Whatever filters there are, and whether few, some thousands or most tokens are left."""
    row = row_of(size, scale=scale, seed=seed) + np.float32(offset)
    steps = [step for name in names for step in STEPS[name]]
    plain = Plain(row)
    hair = np.zeros(size, np.bool_)  # at an edge sums of floats may differ by a token or two
    for step in steps:
        before = plain.left
        step(plain)
        passed = np.isin(before, plain.left)
        edges = np.flatnonzero(np.diff(passed.astype(np.int8), prepend=passed[0]))
        for edge in edges:
            hair[before[max(edge - 3, 0) : edge + 3]] = True
    for number in numbers:
        pool = pool_of(row)
        for step in steps:
            step(pool)
        token = pool.draw(np.float32(temperature), number)
        assert token in plain.left or hair[token]
        assert token == again(row, steps, temperature, number)
        best = pool_of(row)
        for step in steps:
            step(best)
        assert best.best() == plain.left[plain.row[plain.left].argmax()] or hair[best.best()]


def again(row: Row, steps: list[Step], temperature: float, number: float) -> int:
    pool = pool_of(row)
    for step in steps:
        step(pool)
    return pool.draw(np.float32(temperature), number)


def test_what_is_ruled_out_is_never_drawn_of_many() -> None:
    row = row_of(9000)
    row[::2] = -np.inf
    for steps in STEPS.values():
        for number in (0.0, 0.3, 0.999999):
            pool = pool_of(row)
            for step in steps:
                step(pool)
            assert pool.draw(ONE, number) % 2 == 1
            assert pool.best() % 2 == 1


def test_equals_fill_a_nucleus_one_by_one() -> None:
    row = np.zeros(10_000, np.float32)
    drawn = set()
    for number in np.linspace(0, 0.9999, 500):
        pool = pool_of(row)
        pool.keep_nucleus(0.5)
        drawn.add(pool.draw(ONE, float(number)))
    assert max(drawn) < 5000
    assert len(drawn) > 400


def test_outliers_do_not_pass() -> None:
    row = np.array([8.0, 9.0, 10.0, 1.0, -np.inf], np.float32)
    for num_deviations, passing in ((0.5, {1, 2}), (100.0, {0, 1, 2, 3})):
        drawn = set()
        for number in np.linspace(0, 0.999999, 50):
            pool = pool_of(row)
            pool.keep_within_deviations(num_deviations)
            drawn.add(pool.draw(np.float32(50), float(number)))
        assert drawn == passing


@pytest.mark.parametrize(
    ("threshold", "left"), [(0.15, {3, 1, 4}), (0.5, {2, 0, 3, 1, 4}), (0.0, {4})]
)
def test_of_the_top_choices_the_last_is_left(threshold: float, left: set[int]) -> None:
    row = np.log(np.array([0.3, 0.05, 0.4, 0.2, 0.05], np.float32))
    drawn = set()
    for number in np.linspace(0, 0.999, 100):
        pool = pool_of(row)
        pool.drop_top_choices(threshold)
        drawn.add(pool.draw(ONE, float(number)))
    assert drawn == left


@pytest.mark.parametrize(("second", "is_dropped"), [(357.40, False), (357.494, False), (358, True)])
def test_what_is_likely_in_a_nucleus_depends_on_its_last_token(
    second: float, is_dropped: bool
) -> None:
    """A nucleus of 0.6 weighs 3574.50 at least, here 3575.49, of which a tenth is 357.549."""
    weights = np.ones(5002, np.float32)
    weights[[70, 3000]] = (600, second)
    row = np.log(weights)
    drawn = set()
    for number in np.linspace(0, 0.999, 200):
        pool = pool_of(row)
        pool.keep_nucleus(0.6)
        pool.drop_top_choices(0.1)
        drawn.add(pool.draw(ONE, float(number)))
    assert 3000 in drawn
    assert (70 not in drawn) == is_dropped


def test_the_best_of_what_is_left() -> None:
    row = row_of(2 * FEW)
    order = np.argsort(-row)
    pool = pool_of(row)
    assert pool.best() == order[0]
    pool.keep_nucleus(0.9)
    assert pool.best() == order[0]
    pool.drop_top_choices(0.0001)
    assert pool.best() != order[0]
