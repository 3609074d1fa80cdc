"""What drafts added to a step is measured, not thought."""

from dataclasses import replace

import pytest

from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.speculation.checking_cost import (
    LEAST_SURPRISE,
    MOST_SURPRISE,
    checking_cost,
)
from arriero.agent.engine.speculation.drafter import UNKNOWN_PRICES, StepPrices
from arriero.agent.engine.step import Run, Step

PRICES = StepPrices(step=1.0, token=0.1, num_generating=1, most=1.0)
RUN = Run(SequenceId(0), 0, 5, (1, 2, 3), True, num_drafted=2)
STEP = Step((), (RUN,), num_generating=1, num_prompt_tokens=0, num_drafted=2)


def test_it_is_what_the_step_took_longer() -> None:
    assert checking_cost(PRICES, STEP, 1.5) == pytest.approx(0.5)


def test_a_step_that_was_a_bit_quicker_than_thought_counts_too_so_that_noise_cancels_out() -> None:
    assert checking_cost(PRICES, STEP, 0.9) == pytest.approx(-0.1)
    assert checking_cost(PRICES, STEP, 0.1) == pytest.approx(LEAST_SURPRISE - 1)


def test_of_a_step_while_the_machine_was_busy_not_all_counts() -> None:
    assert checking_cost(PRICES, STEP, 50.0) == pytest.approx(MOST_SURPRISE * 1.2 - 1)


def test_beside_prompts_and_with_others_it_is_what_was_thought() -> None:
    assert checking_cost(PRICES, replace(STEP, num_prompt_tokens=3), 9.0) == pytest.approx(0.2)
    assert checking_cost(PRICES, replace(STEP, num_generating=2), 9.0) == pytest.approx(0.2)


def test_without_drafts_or_prices_it_is_nothing() -> None:
    assert checking_cost(PRICES, replace(STEP, num_drafted=0), 9.0) == 0
    assert checking_cost(UNKNOWN_PRICES, STEP, 9.0) == 0
