"""Learning what reading prompts costs."""

import pytest

from arriero.agent.engine.cost.prefill_cost import MOST_GROWTH, OVERDRAFT, PrefillCost

ENDLESS = 5000
BASE, TOKEN, PAIR, UNTILED_PAIR = 0.05, 0.004, 3e-6, 7e-6


def true_cost(num_tokens: int, depth: int, num_generating: int = 0) -> float:
    pair = PAIR if num_tokens + num_generating > 63 else UNTILED_PAIR
    base = 0 if num_generating else BASE
    return base + TOKEN * num_tokens + pair * num_tokens * (depth + num_tokens / 2)


def make(*steps: tuple[int, int, int]) -> PrefillCost:
    """Steps by tokens, depth, and how many generate besides."""
    cost = PrefillCost(most_mixed=63)
    for num_tokens, depth, num_generating in steps:
        seconds = true_cost(num_tokens, depth, num_generating)
        cost.observe(num_tokens, depth, seconds, num_generating=num_generating)
    return cost


SHALLOW = [(40, 0, 7), (128, 40, 0), (64, 168, 0), (192, 232, 0), (30, 300, 7), (64, 424, 0)]


def test_nothing_is_known_at_first() -> None:
    assert not make().is_known
    assert make().within(0.1, ENDLESS, 0) == float("inf")


@pytest.mark.parametrize(("num_tokens", "depth"), [(128, 1000), (64, 2000), (256, 0)])
def test_what_is_deep_is_known_before_it_is_read(num_tokens: int, depth: int) -> None:
    predicted = make(*SHALLOW * 3).predict(num_tokens, depth)
    assert predicted == pytest.approx(true_cost(num_tokens, depth), rel=0.06)


def test_untiled_attention_has_a_price_of_its_own() -> None:
    cost = make(*SHALLOW * 3)
    little = cost.predict(32, 1000, num_generating=7)
    assert little == pytest.approx(true_cost(32, 1000, 7), rel=0.1)
    assert cost.predict(63, 1000) > 1.3 * cost.predict(64, 1000)


def test_and_is_thought_to_be_dearer_as_long_as_it_was_not_seen() -> None:
    cost = make(*[step for step in SHALLOW if not step[2]] * 3)
    assert cost.predict(63, 1000) > 1.3 * cost.predict(64, 1000)


def test_as_much_is_read_as_fits() -> None:
    cost = make(*SHALLOW * 3)
    for depth in (0, 500, 1500):
        count = int(cost.within(1.0, ENDLESS, depth))
        assert cost.predict(count, depth) == pytest.approx(1, abs=0.02)


def test_a_tile_is_read_where_it_takes_a_little_longer() -> None:
    cost = make(*SHALLOW * 3)
    tile = cost.predict(64, 500)
    assert cost.within(tile / OVERDRAFT + 0.001, ENDLESS, 500) == 64
    less = cost.within(tile / OVERDRAFT - 0.001, ENDLESS, 500)
    assert less < 63
    assert cost.predict(int(less), 500) < tile


def test_what_is_left_of_a_prompt_costs_what_little_does() -> None:
    cost = make(*SHALLOW * 3)
    little = cost.within(0.3, 20, 500, num_generating=7)
    assert true_cost(int(little), 500, 7) == pytest.approx(0.3, rel=0.1)


def test_where_steps_cannot_mix_a_little_has_a_base_as_well() -> None:
    cost = PrefillCost(most_mixed=63, can_mix=False)
    for num_tokens, depth in ((128, 0), (30, 128), (64, 158), (50, 222), (192, 272)) * 3:
        cost.observe(num_tokens, depth, true_cost(num_tokens, depth))
    assert true_cost(int(cost.within(0.2, 20, 500, num_generating=7)), 500) < 0.21


def test_beside_streams_no_step_reads_far_more_than_one_did() -> None:
    cost = make((100, 0, 0))
    assert cost.within(60.0, ENDLESS, 0, num_generating=1) == 100 * MOST_GROWTH
    assert cost.within(60.0, ENDLESS, 0) > 300, "with nobody to stall it may"
    assert make((10, 0, 1)).within(60.0, ENDLESS, 0, num_generating=1) == 64


def test_one_slow_step_changes_little_and_two_are_believed() -> None:
    cost = make(*SHALLOW * 3)
    before = cost.predict(64, 400)
    cost.observe(64, 400, 10 * before)
    after_one = cost.predict(64, 400)
    assert before < after_one < 1.1 * before
    cost.observe(64, 400, 10 * before)
    assert cost.predict(64, 400) > 1.5 * before


def test_a_machine_that_became_faster_is_believed_at_once() -> None:
    """The first step of all is often slow: weights are still read from the disk."""
    cost = PrefillCost(most_mixed=63)
    cost.observe(100, 0, 8 * true_cost(100, 0))
    cost.bound_base(0.1)
    for num_tokens in (30, 40):
        cost.observe(num_tokens, 0, true_cost(num_tokens, 0, 7), num_generating=7)
    predicted = cost.predict(64, 0)
    assert predicted < 2 * true_cost(64, 0), "not 8 times"


def test_steps_that_take_no_time_teach_nothing() -> None:
    cost = PrefillCost(most_mixed=63)
    cost.observe(100, 0, 0.0)
    assert cost.within(0.1, ENDLESS, 0) == float("inf")
    cost.observe(100, 0, true_cost(100, 0))
    assert cost.within(0.1, ENDLESS, 0) < 64
