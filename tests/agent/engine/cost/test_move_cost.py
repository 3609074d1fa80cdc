"""What copying cells costs, and how many may be copied in a step."""

import pytest

from arriero.agent.engine.cost.move_cost import LIKELY, MOST_BYTES, PART, SLOWEST, MoveCost


def test_beside_streams_no_more_bytes_than_a_moment_takes() -> None:
    cost = MoveCost(MOST_BYTES // 100)
    first = cost.within(0.5, is_alone=False)
    assert 1 < first < 100, "nothing is known of the first"
    assert cost.within(0.5, is_alone=True) > 1000
    for _ in range(20):
        cost.observe(100, 1e-6)
    assert int(cost.within(0.5, is_alone=False)) == 100, "however cheap it was so far"


def test_where_it_is_dear_fewer_cells() -> None:
    cost = MoveCost(1)
    cost.observe(6, 1e-5)
    cost.observe(1000, 10.0)
    fitting = cost.within(0.5, is_alone=False)
    assert fitting == pytest.approx(100 * 0.5 * PART, rel=0.01), "what few cells cost says little"
    assert cost.seconds(50) == pytest.approx(0.5, rel=0.01)


def test_what_takes_no_memory_costs_nothing() -> None:
    cost = MoveCost(0)
    assert cost.within(0.5, is_alone=False) == float("inf")
    assert cost.seconds(1000) == 0


def test_a_stream_is_copied_whole_where_that_is_likely_to_be_in_time() -> None:
    cost = MoveCost(2**20)
    assert cost.most_whole(0.5, is_sure=False) == LIKELY / 2**21
    assert cost.most_whole(0.5, is_sure=True) == SLOWEST / 2**21
    cost.observe(100, 1.0)
    cost.observe(100, 0.5)
    assert 50 < cost.most_whole(0.5, is_sure=False) < 100
    assert cost.most_whole(0.5, is_sure=True) == pytest.approx(50, rel=0.1)
    assert MoveCost(0).most_whole(0.5, is_sure=False) == float("inf")


def test_a_small_piece_that_took_long_says_little_of_a_larger_one() -> None:
    cost = MoveCost(530)
    cost.observe(64, 0.05)
    assert cost.most_whole(0.1, is_sure=True) > 1444
    assert cost.most_whole(0.04, is_sure=True) == 0, "as long as that one"


def test_a_slow_copy_is_forgotten_while_nothing_is_copied() -> None:
    cost = MoveCost(2**20)
    cost.observe(100, 2.0)
    assert cost.most_whole(1.0, is_sure=True) < 100
    for _ in range(5_000):
        cost.nothing_copied()
    assert cost.most_whole(1.0, is_sure=True) < 100, "not soon"
    for _ in range(5_000):
        cost.nothing_copied()
    assert cost.most_whole(1.0, is_sure=True) > 100
    for _ in range(100_000):
        cost.nothing_copied()
    assert cost.most_whole(1.0, is_sure=True) == pytest.approx(SLOWEST / 2**20), "as at first"
