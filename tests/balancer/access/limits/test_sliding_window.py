"""The last minute, added up."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.access.limits.sliding_window import GRAIN, SPAN, SlidingWindow

EXACT = [0.0, 0.03125, 0.125, 1.0, 20.0, 59.875, 60.0]
"""Pauses that add up without rounding."""
STEPS = st.lists(
    st.tuples(st.sampled_from(EXACT), st.integers(0, 5)),
    max_size=40,
)


@given(STEPS)
def test_it_holds_the_last_minute_and_hardly_more(steps: list[tuple[float, int]]) -> None:
    window = SlidingWindow()
    added: list[tuple[float, int]] = []
    now = 100.0
    for pause, amount in steps:
        now += pause
        window.add(amount, now)
        added.append((now, amount))
        within = sum(amount for at, amount in added if now - at < SPAN)
        with_grain = sum(amount for at, amount in added if now - at < SPAN + GRAIN)
        assert within <= window.used(now) <= with_grain


@given(STEPS, st.integers(0, 20))
def test_it_says_when_less_is_left(steps: list[tuple[float, int]], most: int) -> None:
    window = SlidingWindow()
    now = 100.0
    for pause, amount in steps:
        now += pause
        window.add(amount, now)
    seconds = window.seconds_until(most, now)
    assert (seconds == 0) == (window.used(now) <= most)
    if seconds > 0.01:
        assert window.used(now + seconds - 0.01) > most
    assert window.used(now + seconds + 1e-6) <= most


def test_its_size_is_bounded_whatever_is_added() -> None:
    window = SlidingWindow()
    for number in range(20_000):
        window.add(1, number * 0.01)
    assert len(window) <= SPAN / GRAIN + 1


def test_it_is_empty_after_a_minute() -> None:
    window = SlidingWindow()
    window.add(5, 0.0)
    window.add(5, 10.0)
    assert window.seconds_until_empty(20.0) == 50.0
    assert window.used(60.0) == 5
    assert window.used(70.0) == 0


def test_what_came_together_leaves_with_the_last_of_it() -> None:
    window = SlidingWindow()
    window.add(1, 0.0)
    window.add(2, 0.0625)
    assert len(window) == 1
    assert window.used(60.03125) == 3
    assert window.used(60.0625) == 0
