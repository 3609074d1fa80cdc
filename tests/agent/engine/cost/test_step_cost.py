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
    cost = learn((0, 100, 0.4), (8, 0, 0.1))
    assert cost.generate(8) == pytest.approx(0.1)
    assert cost.read_within(0.4, 5000) == pytest.approx(100)


def test_reading_beside_generating_is_what_the_step_took_beyond_that() -> None:
    cost = learn((8, 0, 0.1), (8, 64, 0.5))
    assert cost.read_within(0.4, 5000) == pytest.approx(64)


def test_prompts_cost_something_even_where_generating_is_thought_to_take_it_all() -> None:
    """The machine was busy with something else before; without that, no chunk had a bound."""
    cost = learn(*[(7, 0, 0.23)] * 5, (7, 27, 0.22), (7, 33, 0.23))
    assert cost.read_within(0.46, 5000, num_generating=7) <= 64


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
    assert 12 < cost.read_within(0.2, 5000, num_generating=7) < 22


def test_generating_is_believed_to_be_cheap_again_soon() -> None:
    cost = learn(*[(7, 0, 0.23)] * 20, *[(7, 0, 0.1)] * 3)
    assert cost.generate(7) == pytest.approx(0.1, rel=0.1)


def test_the_price_of_prompts_is_not_forgotten_while_there_are_none() -> None:
    cost = learn((0, 100, 0.4), *[(8, 0, 0.1)] * 50_000)
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
    assert cost.read_within(0.5, 5000, num_generating=8) == pytest.approx(50, rel=0.05)


def test_what_is_deep_costs_more() -> None:
    cost = StepCost()
    for depth, seconds in ((0, 0.4), (300, 0.5)):
        cost.observe(num_generating=0, num_prompt_tokens=100, depth=depth, seconds=seconds)
    shallow, deep = (cost.read_within(0.5, 5000, depth=depth) for depth in (0, 300))
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
    assert cost.read_within(0.4, 5000) == pytest.approx(100)


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
