"""A straight line through what was seen."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.cost.linear_cost import LinearCost


def learn(*observations: tuple[int, float]) -> LinearCost:
    line = LinearCost()
    for count, seconds in observations:
        line.observe(count, seconds)
    return line


def test_nothing_is_known_at_first() -> None:
    line = LinearCost()
    assert not line.is_known
    assert line.predict(100) == 0
    assert line.most_within(0.5) == float("inf")


def test_one_observation_makes_a_line_through_zero() -> None:
    line = learn((512, 2.048))
    assert line.predict(128) == pytest.approx(0.512)
    assert line.most_within(0.4) == pytest.approx(100)


def test_base_and_slope_are_found() -> None:
    random = Random(1)
    counts = [random.choice([16, 32, 64, 128]) for _ in range(200)]
    line = learn(*[(count, 0.11 + 0.0047 * count) for count in counts])
    assert line.predict(32) == pytest.approx(0.26, rel=0.1)
    assert line.predict(128) == pytest.approx(0.71, rel=0.1)
    assert line.most_within(0.41) == pytest.approx(64, rel=0.1)


def test_less_than_the_base_buys_little() -> None:
    mean = (10 / 11**2 * 0.95 + 100 / 101**2) / (0.95 / 11**2 + 1 / 101**2)
    line = learn((10, 1.0), (100, 1.0))
    assert line.most_within(0.1) == pytest.approx(0.1 * mean / 2, rel=0.01)


def test_one_surprise_counts_for_less_and_the_second_in_a_row_in_full() -> None:
    usual = [(10, 1.0)] * 10
    assert learn(*usual, (10, 9.0)).predict(10) == learn(*usual, (10, 2.0)).predict(10)
    assert learn(*usual, (10, 9.0), (10, 9.0)).predict(10) > 1.8


def test_noise_does_not_tilt_a_line_of_nearly_equal_counts() -> None:
    random = Random(2)
    line = learn(*[(80 + i % 3, 0.4 * random.uniform(0.95, 1.05)) for i in range(100)])
    assert line.predict(160) == pytest.approx(0.8, rel=0.15)


def test_a_host_that_slows_down_is_noticed() -> None:
    line = learn(*[(64, 0.2)] * 100, *[(64, 1.0)] * 60)
    assert line.predict(64) == pytest.approx(1.0, rel=0.1)


@given(seen=st.lists(st.tuples(st.integers(1, 2048), st.floats(0, 1e3)), max_size=40))
def test_nothing_ever_costs_less_than_nothing(seen: list[tuple[int, float]]) -> None:
    line = learn(*seen)
    assert -1e-9 <= line.predict(0) <= line.predict(1) + 1e-9
    assert line.most_within(0.5) >= 0


def test_the_price_of_one_more_is_a_share() -> None:
    assert LinearCost().share(3) == 0
    line = learn(*[(count, 0.6 + 0.2 * count) for count in [1, 2, 3, 4] * 20])
    assert line.share(2) == pytest.approx(0.2, rel=0.1)
    assert learn((4, 1.0)).share(4) == pytest.approx(0.25)


def test_a_line_that_leans_less_dares_to_find_out() -> None:
    line = LinearCost(lean=0.5)
    for _ in range(20):
        line.observe(1, 1.0)
    assert line.share(1) == pytest.approx(0.5)
    line.observe(4, 4.0)
    assert line.share(1) > 0.9


def test_what_was_found_is_forgotten_as_slowly_as_is_set() -> None:
    quick, slow = LinearCost(lean=0.5), LinearCost(lean=0.5, forgetting=0.99)
    for line in (quick, slow):
        for count in (1, 8, *[1] * 60):
            line.observe(count, 1.0 * count)
    assert quick.share(1) < slow.share(1)
    assert slow.share(1) > 0.7


def test_a_line_that_doubts_believes_a_second_surprise() -> None:
    doubting, slow = LinearCost(doubts=True), LinearCost()
    for line in (doubting, slow):
        for seconds in (*[0.1] * 20, *[0.15] * 3):
            line.observe(7, seconds)
    assert doubting.predict(7) > 0.13
    assert slow.predict(7) < 0.12
