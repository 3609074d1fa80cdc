"""Learning what reading prompts costs at one depth."""

import pytest

from arriero.agent.engine.reading_cost import RETRY, ReadingCost

ENDLESS = 5000


def make(*steps: tuple[int, float]) -> ReadingCost:
    cost = ReadingCost(most_mixed=63)
    for num_tokens, seconds in steps:
        cost.observe(num_tokens, seconds)
    return cost


def test_enough_for_a_cheap_step_is_read_where_it_takes_a_little_longer() -> None:
    cost = make((80, 0.4), (40, 0.4), (80, 0.4), (40, 0.4))
    assert cost.within(0.4, ENDLESS) == pytest.approx(80)
    assert cost.within(0.32 / 1.2, ENDLESS) == 64
    assert cost.within(0.2, ENDLESS) == pytest.approx(20)


def test_whether_that_is_still_too_dear_is_seen_now_and_then() -> None:
    cost = make((80, 0.4), (80, 0.4), *[(20, 0.2)] * RETRY)
    assert cost.within(0.2, ENDLESS) == 64


def test_what_is_left_of_a_prompt_costs_what_little_does() -> None:
    cost = make((64, 0.5), (40, 0.6), (64, 0.5), (40, 0.6))
    assert cost.within(0.5, 64) == pytest.approx(64)
    assert cost.within(0.5, 63) == pytest.approx(100 / 3)
    assert make((64, 0.5)).within(0.5, 20) == pytest.approx(64), "nothing else is known"
