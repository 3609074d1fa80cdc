"""Learning what a step costs."""

import pytest

from arriero.agent.engine.step_cost import StepCost


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
    assert not cost.knows_mixed


def test_each_kind_of_step_has_its_price() -> None:
    cost = learn((0, 512, 2.048), (8, 0, 0.1), (8, 64, 0.5))
    assert cost.generate(8) == pytest.approx(0.1)
    assert cost.read_within(0.4) == pytest.approx(100)
    assert cost.mixed_within(0.5, 8) == pytest.approx(64)
    assert cost.mixed_within(0.3, 8) == pytest.approx(32)


def test_the_prices_of_prompts_are_not_forgotten_while_there_are_none() -> None:
    cost = learn((0, 512, 2.048), (8, 64, 0.5), *[(8, 0, 0.1)] * 50_000)
    assert cost.read_within(0.4) == pytest.approx(100)
    assert cost.mixed_within(0.5, 8) == pytest.approx(64 * 0.4 / 0.5)


def test_when_generating_alone_is_too_slow_nothing_fits_beside() -> None:
    cost = learn((0, 100, 0.4), (2, 0, 0.6), (2, 10, 0.7))
    assert cost.mixed_within(0.5, 2) <= 0


def test_a_step_that_was_quicker_than_generating_alone_costs_nothing_more() -> None:
    cost = learn((8, 0, 0.1), (8, 64, 0.05))
    assert cost.mixed_within(0.5, 8) == float("inf")


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


def test_beside_prompts_a_drafted_token_costs_as_much_as_one_of_theirs() -> None:
    cost = learn((8, 0, 0.1))
    cost.observe(num_generating=8, num_prompt_tokens=56, num_drafted=8, seconds=0.5)
    assert cost.mixed_within(0.5, 8) == pytest.approx(64)
