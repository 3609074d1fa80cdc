"""Prices from noisy observations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.cost.least_squares import LeastSquares, Tie, solve


def learn(
    *observations: tuple[tuple[float, ...], float],
    penalties: tuple[float, ...] = (0.01, 0.0),
    ties: tuple[Tie, ...] = (),
) -> LeastSquares:
    fit = LeastSquares(penalties, forgetting=0.9, ties=ties)
    for features, value in observations:
        fit.observe(features, value, usual=value)
    return fit


def test_nothing_costs_anything_at_first() -> None:
    assert learn().prices == [0, 0]


def test_prices_are_those_that_were_paid() -> None:
    fit = learn(*[((1.0, float(count)), 3 + 0.5 * count) for count in (1, 5, 20, 50)] * 5)
    assert fit.prices == pytest.approx([3, 0.5], rel=0.1)


def test_where_features_are_not_told_apart_penalties_decide() -> None:
    assert learn(((1.0, 10.0), 5.0), ((1.0, 10.0), 5.0)).prices == pytest.approx([0, 0.5])


def test_no_price_is_negative() -> None:
    fit = learn(*[((1.0, 10.0), 5.0), ((1.0, 20.0), 4.0)] * 10)
    assert fit.prices == pytest.approx([4.4, 0], rel=0.05)


def test_the_latest_counts_most() -> None:
    fit = learn(*[((0.0, 10.0), 5.0)] * 40)
    for _ in range(40):
        fit.observe((0.0, 10.0), 50.0, usual=5.0)
    assert fit.prices[1] == pytest.approx(5, rel=0.05)


def test_what_is_doubted_counts_little() -> None:
    fit = learn(*[((0.0, 10.0), 5.0)] * 40)
    fit.doubt(0.01)
    fit.observe((0.0, 10.0), 50.0, usual=5.0)
    assert fit.prices[1] > 4


def test_a_tie_says_what_was_never_seen() -> None:
    tie = Tie(0, 1, 3.0, 0.001)
    fit = learn(((10.0, 0.0), 5.0), penalties=(0, 0), ties=(tie,))
    assert fit.prices == pytest.approx([0.5, 1.5])
    for _ in range(20):
        fit.observe((10.0, 0.0), 5.0, usual=5.0)
        fit.observe((10.0, 10.0), 7.0, usual=7.0)
    assert fit.prices == pytest.approx([0.5, 0.2], rel=0.1), "it gives way to what is seen"


def test_a_bound_on_the_first_price_leaves_the_rest_to_the_others() -> None:
    fit = learn(*[((1.0, 10.0), 8.0), ((1.0, 20.0), 11.0)] * 10)
    fit.bound_first(2.0)
    assert fit.prices == pytest.approx([2, 0.48], rel=0.1)


def test_a_supposition_is_forgotten() -> None:
    fit = learn(((10.0, 10.0), 5.0), penalties=(0, 0))
    fit.suppose(Tie(0, 1, 4.0, 0.5))
    assert fit.prices == pytest.approx([0.1, 0.4])
    for _ in range(200):
        fit.observe((10.0, 10.0), 5.0, usual=5.0)
        fit.observe((10.0, 20.0), 5.5, usual=5.5)
    assert fit.prices == pytest.approx([0.45, 0.05], rel=0.02)


@given(
    st.lists(
        st.tuples(
            st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e9)),
            st.floats(1e-6, 1e4),
        ),
        max_size=30,
    )
)
def test_prices_are_finite_whatever_was_seen(
    observations: list[tuple[tuple[float, ...], float]],
) -> None:
    fit = learn(*observations, penalties=(0.02, 0, 0), ties=(Tie(1, 2, 1.5, 0.003),))
    assert all(0 <= price < float("inf") for price in fit.prices)


def test_linear_equations_are_solved() -> None:
    matrix = [[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]]
    assert solve(matrix, [6.0, 10.0, 8.0]) == pytest.approx([1.0, 2.0, 3.0])


def test_unknowns_that_cannot_be_told_apart_are_one() -> None:
    assert solve([[4.0, 2.0], [2.0, 1.0]], [8.0, 4.0]) == [2.0, 0.0]
    assert solve([[0.0, 0.0], [0.0, 2.0]], [0.0, 6.0]) == [0.0, 3.0]
