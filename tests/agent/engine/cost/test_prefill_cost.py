"""Learning what reading prompts costs."""

import pytest

from arriero.agent.engine.cost.prefill_cost import RETRY, CostByDepth, PrefillCost


def test_each_octave_has_its_own() -> None:
    lines = CostByDepth()
    assert not lines.at(0).is_known
    for depth, seconds in ((0, 0.4), (300, 0.5), (5000, 2.0), (255, 0.4)):
        lines.observe(depth, 100, seconds)
    assert lines.at(255).predict(100) == pytest.approx(0.4)
    assert lines.at(256).predict(100) == pytest.approx(0.5)
    assert lines.at(4096).predict(100) == pytest.approx(2.0)
    assert lines.at(2000).predict(100) == pytest.approx(0.5), "the next shallower one"


def test_a_deeper_one_is_better_than_none() -> None:
    lines = CostByDepth()
    lines.observe(5000, 100, 2.0)
    assert lines.at(0).predict(100) == pytest.approx(2.0)


ENDLESS = 5000


def make(*steps: tuple[int, float], depth: int = 0) -> PrefillCost:
    cost = PrefillCost(most_mixed=63)
    for num_tokens, seconds in steps:
        cost.observe(depth, num_tokens, seconds)
    return cost


def test_enough_for_a_cheap_step_is_read_where_it_takes_a_little_longer() -> None:
    cost = make((80, 0.4), (40, 0.4), (80, 0.4), (40, 0.4))
    assert cost.within(0.4, ENDLESS, 0) == pytest.approx(80)
    assert cost.within(0.32 / 1.2, ENDLESS, 0) == 64
    assert cost.within(0.2, ENDLESS, 0) == pytest.approx(20)


def test_also_where_little_was_never_read() -> None:
    cost = make((64, 0.4), (64, 0.4))
    assert cost.within(0.39, ENDLESS, 0) == 64
    assert cost.within(0.2, ENDLESS, 0) == pytest.approx(32)


def test_and_where_only_little_was_read_at_that_depth() -> None:
    cost = make((64, 0.4))
    cost.observe(1100, 40, 0.6)
    assert cost.within(0.4, ENDLESS, 1100) == pytest.approx(64)


def test_whether_that_is_still_too_dear_is_seen_now_and_then() -> None:
    cost = make((80, 0.4), (80, 0.4), *[(20, 0.2)] * RETRY)
    assert cost.within(0.2, ENDLESS, 0) == 64


def test_what_is_left_of_a_prompt_costs_what_little_does() -> None:
    cost = make((64, 0.5), (40, 0.6), (64, 0.5), (40, 0.6))
    assert cost.within(0.5, 64, 0) == pytest.approx(64)
    assert cost.within(0.5, 63, 0) == pytest.approx(100 / 3)
    assert make((64, 0.5)).within(0.5, 20, 0) == pytest.approx(64), "nothing else is known"


def test_a_model_that_never_reads_much_is_not_pushed() -> None:
    cost = PrefillCost(most_mixed=512)
    for _ in range(2 * RETRY):
        cost.observe(0, 300, 0.5)
    assert cost.within(0.5, ENDLESS, 0) == pytest.approx(300)
