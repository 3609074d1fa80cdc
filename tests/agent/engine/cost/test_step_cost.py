"""Learning what a step costs."""

import pytest

from arriero.agent.engine.cost.step_cost import StepCost


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
    assert not cost.knows_reading


def test_each_kind_of_step_has_its_price() -> None:
    cost = learn((0, 512, 2.048), (8, 0, 0.1))
    assert cost.generate(8) == pytest.approx(0.1)
    assert cost.read_within(0.4, 5000) == pytest.approx(100)


def test_reading_beside_generating_is_what_the_step_took_beyond_that() -> None:
    cost = learn((8, 0, 0.1), (8, 64, 0.5))
    assert cost.read_within(0.4, 5000) == pytest.approx(64)
    assert learn((8, 0, 0.1), (8, 64, 0.05)).read_within(0.5, 5000) == float("inf")


def test_the_price_of_prompts_is_not_forgotten_while_there_are_none() -> None:
    cost = learn((0, 512, 2.048), *[(8, 0, 0.1)] * 50_000)
    assert cost.read_within(0.4, 5000) == pytest.approx(100)


def test_one_slow_step_changes_little_and_many_are_believed() -> None:
    usual = [(0, 100, 0.4)] * 20
    assert learn(*usual, (0, 100, 10.0)).read_within(0.4, 5000) > 90
    assert learn(*usual, *[(0, 100, 4.0)] * 20).read_within(4.0, 5000) < 150


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
    assert cost.read_within(0.5, 5000) == pytest.approx(50, rel=0.05)


def test_what_is_deep_costs_more() -> None:
    cost = StepCost()
    for depth, seconds in ((0, 0.4), (300, 0.5)):
        cost.observe(num_generating=0, num_prompt_tokens=100, depth=depth, seconds=seconds)
    assert cost.read_within(1.0, 5000) == pytest.approx(250)
    assert cost.read_within(1.0, 5000, depth=300) == pytest.approx(200)
