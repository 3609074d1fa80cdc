"""Learning what a step costs."""

import pytest

from arriero.agent.engine.cost.step_cost import MOST_GROWTH, OVERDRAFT, PrefillCost, StepCost


def learn(*steps: tuple[int, int, float]) -> StepCost:
    cost = StepCost()
    for num_generating, num_prompt_tokens, seconds in steps:
        cost.observe(
            num_generating=num_generating, num_prompt_tokens=num_prompt_tokens, seconds=seconds
        )
    return cost


def test_nothing_is_known_at_first() -> None:
    cost = StepCost()
    assert cost.generate(8) == 0
    assert not cost.knows_prefill


def test_each_kind_of_step_has_its_price() -> None:
    cost = learn((0, 100, 0.4), (8, 0, 0.1))
    assert cost.generate(8) == pytest.approx(0.1)
    assert cost.prefill_within(0.4, 5000) == pytest.approx(100)


def test_reading_beside_generating_is_what_the_step_took_beyond_that() -> None:
    cost = learn((8, 0, 0.1), (8, 64, 0.5))
    assert cost.prefill_within(0.4, 5000) == pytest.approx(64)


def test_prompts_cost_something_even_where_generating_is_thought_to_take_it_all() -> None:
    """The machine was busy with something else before; without that, no chunk had a bound."""
    cost = learn(*[(7, 0, 0.23)] * 5, (7, 27, 0.22), (7, 33, 0.23))
    assert cost.prefill_within(0.46, 5000, num_generating=7) <= 64


def test_mixed_steps_tell_that_the_machine_became_faster() -> None:
    """No step that only generates may come for long."""
    slow = [(7, 0, 0.2), (7, 30, 0.4)] * 10
    cost = learn(*slow, *[(7, 30, 0.2)] * 3)
    assert cost.generate(7) < 0.13
    assert learn(*slow, *[(7, 30, 0.39)] * 3).generate(7) == pytest.approx(0.2)


def test_mixed_steps_tell_that_the_machine_became_slower() -> None:
    """Prompts do not make up for it alone: they would be read token by token."""
    usual = [(7, 0, 0.2), (7, 30, 0.4)] * 10
    cost = learn(*usual, *[(7, 30, 0.8)] * 4)
    assert cost.generate(7) == pytest.approx(0.4, rel=0.15)
    assert 12 < cost.prefill_within(0.2, 5000, num_generating=7) < 22


def test_generating_is_believed_to_be_cheap_again_soon() -> None:
    cost = learn(*[(7, 0, 0.23)] * 20, *[(7, 0, 0.1)] * 3)
    assert cost.generate(7) == pytest.approx(0.1, rel=0.1)


def test_the_price_of_prompts_is_not_forgotten_while_there_are_none() -> None:
    cost = learn((0, 100, 0.4), *[(8, 0, 0.1)] * 50_000)
    assert cost.prefill_within(0.4, 5000) == pytest.approx(100)


def test_one_slow_step_changes_little_and_many_are_believed() -> None:
    usual = [(0, 100, 0.4)] * 20
    assert learn(*usual, (0, 100, 10.0)).prefill_within(0.4, 5000) > 90
    assert learn(*usual, *[(0, 100, 4.0)] * 20).prefill_within(4.0, 5000) < 150


def test_a_drafted_token_costs_what_a_generating_sequence_does() -> None:
    cost = StepCost()
    for num_drafted in [0, 1, 2, 3] * 20:
        cost.observe(
            num_generating=1,
            num_prompt_tokens=0,
            num_drafted=num_drafted,
            seconds=0.6 + 0.2 * (1 + num_drafted),
        )
    assert cost.draft_price(1) == pytest.approx(0.25, rel=0.05)
    assert cost.draft_price(2) == pytest.approx(0.2, rel=0.05)
    assert cost.generate(5) == pytest.approx(1.6, rel=0.05)


def test_what_a_draft_costs_has_to_be_tried_where_all_steps_were_alike() -> None:
    assert StepCost().draft_price(1) == 1
    assert learn((2, 0, 0.1), (2, 0, 0.1)).draft_price(2) == pytest.approx(0.25)


def test_drafts_are_no_part_of_what_prompts_cost() -> None:
    cost = learn((1, 0, 0.1), (9, 0, 0.9), (1, 0, 0.1), (9, 0, 0.9))
    cost.observe(num_generating=4, num_prompt_tokens=50, num_drafted=4, seconds=1.3)
    assert cost.prefill_within(0.5, 5000, num_generating=8) == pytest.approx(50, rel=0.05)


def test_what_is_deep_costs_more() -> None:
    cost = StepCost()
    for depth, seconds in ((0, 0.4), (300, 0.5)):
        cost.observe(num_generating=0, num_prompt_tokens=100, depth=depth, seconds=seconds)
    shallow, deep = (cost.prefill_within(0.5, 5000, depth=depth) for depth in (0, 300))
    assert shallow > 1.15 * deep
    assert deep == pytest.approx(100, rel=0.1)


def changing(cost: StepCost, *seconds: float) -> StepCost:
    for each in seconds:
        cost.observe(num_generating=1, num_prompt_tokens=0, seconds=each, changes_adapter=True)
    return cost


def test_a_change_of_the_adapter_costs_what_the_step_took_beyond_generating() -> None:
    cost = changing(learn(*[(1, 0, 0.002)] * 9), *[0.007] * 9)
    assert cost.generate(1) == pytest.approx(0.002)
    assert cost.change == pytest.approx(0.005)
    cost.observe(num_generating=0, num_prompt_tokens=100, seconds=0.405, changes_adapter=True)
    assert cost.prefill_within(0.4, 5000) == pytest.approx(100)


def test_where_every_step_changes_the_adapter_one_that_does_not_tells_what_steps_take() -> None:
    cost = changing(StepCost(), *[0.007] * 9)
    assert not cost.knows_unchanged
    assert cost.generate(1) == pytest.approx(0.007)
    for _ in range(3):
        cost.observe(num_generating=1, num_prompt_tokens=0, seconds=0.002)
    assert cost.knows_unchanged
    changing(cost, *[0.007] * 9)
    assert cost.generate(1) == pytest.approx(0.002, rel=0.2)
    assert cost.change == pytest.approx(0.005, rel=0.2)


def test_changes_tell_that_the_machine_became_slower() -> None:
    cost = changing(learn(*[(1, 0, 0.002)] * 9), *[0.007] * 9, *[0.014] * 9)
    assert cost.generate(1) == pytest.approx(0.004, rel=0.25)
    assert cost.change == pytest.approx(0.010, rel=0.25)


# ---- prefill

ENDLESS = 5000
BASE, TOKEN, PAIR, UNTILED_PAIR = 0.05, 0.004, 3e-6, 7e-6


def true_cost(num_tokens: int, depth: int, num_generating: int = 0) -> float:
    pair = PAIR if num_tokens + num_generating > 63 else UNTILED_PAIR
    base = 0 if num_generating else BASE
    return base + TOKEN * num_tokens + pair * num_tokens * (depth + num_tokens / 2)


def prefill(*steps: tuple[int, int, int]) -> PrefillCost:
    """Steps by tokens, depth, and how many generate besides."""
    cost = PrefillCost(most_mixed=63)
    for num_tokens, depth, num_generating in steps:
        seconds = true_cost(num_tokens, depth, num_generating)
        cost.observe(num_tokens, depth, seconds, num_generating=num_generating)
    return cost


SHALLOW = [(40, 0, 7), (128, 40, 0), (64, 168, 0), (192, 232, 0), (30, 300, 7), (64, 424, 0)]


def test_nothing_is_known_of_prefill_at_first() -> None:
    assert not prefill().is_known
    assert prefill().within(0.1, ENDLESS, 0) == float("inf")


@pytest.mark.parametrize(("num_tokens", "depth"), [(128, 1000), (64, 2000), (256, 0)])
def test_what_is_deep_is_known_before_it_is_read(num_tokens: int, depth: int) -> None:
    predicted = prefill(*SHALLOW * 3).predict(num_tokens, depth)
    assert predicted == pytest.approx(true_cost(num_tokens, depth), rel=0.06)


def test_untiled_attention_has_a_price_of_its_own() -> None:
    cost = prefill(*SHALLOW * 3)
    little = cost.predict(32, 1000, num_generating=7)
    assert little == pytest.approx(true_cost(32, 1000, 7), rel=0.1)
    assert cost.predict(63, 1000) > 1.3 * cost.predict(64, 1000)


def test_and_is_thought_to_be_dearer_as_long_as_it_was_not_seen() -> None:
    cost = prefill(*[step for step in SHALLOW if not step[2]] * 3)
    assert cost.predict(63, 1000) > 1.3 * cost.predict(64, 1000)


def test_as_much_is_read_as_fits() -> None:
    cost = prefill(*SHALLOW * 3)
    for depth in (0, 500, 1500):
        count = int(cost.within(1.0, ENDLESS, depth))
        assert cost.predict(count, depth) == pytest.approx(1, abs=0.02)


def test_a_tile_is_read_where_it_takes_a_little_longer() -> None:
    cost = prefill(*SHALLOW * 3)
    tile = cost.predict(64, 500)
    assert cost.within(tile / OVERDRAFT + 0.001, ENDLESS, 500) == 64
    less = cost.within(tile / OVERDRAFT - 0.001, ENDLESS, 500)
    assert less < 63
    assert cost.predict(int(less), 500) < tile


def test_what_is_left_of_a_prompt_costs_what_little_does() -> None:
    cost = prefill(*SHALLOW * 3)
    little = cost.within(0.3, 20, 500, num_generating=7)
    assert true_cost(int(little), 500, 7) == pytest.approx(0.3, rel=0.1)


def test_where_steps_cannot_mix_a_little_has_a_base_as_well() -> None:
    cost = PrefillCost(most_mixed=63, can_mix=False)
    for num_tokens, depth in ((128, 0), (30, 128), (64, 158), (50, 222), (192, 272)) * 3:
        cost.observe(num_tokens, depth, true_cost(num_tokens, depth))
    assert true_cost(int(cost.within(0.2, 20, 500, num_generating=7)), 500) < 0.21


def test_beside_streams_no_step_reads_far_more_than_one_did() -> None:
    cost = prefill((100, 0, 0))
    assert cost.within(60.0, ENDLESS, 0, num_generating=1) == 100 * MOST_GROWTH
    assert cost.within(60.0, ENDLESS, 0) > 300, "with nobody to stall it may"
    assert prefill((10, 0, 1)).within(60.0, ENDLESS, 0, num_generating=1) == 64


def test_one_slow_step_changes_little_and_two_are_believed() -> None:
    cost = prefill(*SHALLOW * 3)
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
