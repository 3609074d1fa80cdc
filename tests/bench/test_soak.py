"""Growth of memory: a cache that fills up, and a leak."""

import pytest

from bench.soak import Point, slopes


def points(agent: list[int]) -> list[Point]:
    return [Point(100 * number, agent=size, balancer=50) for number, size in enumerate(agent)]


def test_a_cache_that_is_full_grows_no_more_in_the_second_half() -> None:
    filled = slopes(points([min(1000 + 100 * number, 1400) for number in range(21)]))["agent"]
    assert filled["second half"] == pytest.approx(0)
    assert filled["settled"] > 0.01


def test_a_leak_shows_in_both() -> None:
    leaking = slopes(points([1000 + 200 * number for number in range(21)]))
    assert leaking["agent"] == pytest.approx({"settled": 2.0, "second half": 2.0})
    assert leaking["balancer"] == pytest.approx({"settled": 0, "second half": 0})
