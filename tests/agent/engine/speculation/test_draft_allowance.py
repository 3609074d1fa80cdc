"""What a draft model loses is bounded, whatever was predicted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.speculation.draft_allowance import EARNED, MOST, DraftAllowance

SECONDS = st.floats(0.001, 10)


def test_before_the_first_step_there_is_none() -> None:
    allowance = DraftAllowance()
    assert allowance.is_spent
    assert not allowance.may_probe


def test_a_few_steps_may_be_lost_at_first() -> None:
    allowance = DraftAllowance()
    allowance.renew(0.1)
    assert allowance.seconds == pytest.approx(0.1 * MOST)
    assert not allowance.is_spent
    assert allowance.may_probe
    allowance.add(-0.1 * MOST)
    assert allowance.is_spent


def test_afterwards_a_small_part_of_the_time_is_earned() -> None:
    allowance = DraftAllowance()
    allowance.renew(1.0)
    allowance.add(-2 * MOST)
    for _ in range(100):
        allowance.renew(1.0)
    assert allowance.seconds == pytest.approx(-MOST + 100 * EARNED)


def test_a_draft_model_is_tried_again_when_enough_was_earned_and_not_all_the_time() -> None:
    allowance = DraftAllowance()
    allowance.renew(1.0)
    allowance.add(-MOST * 0.6)
    assert not allowance.may_probe
    assert not allowance.is_spent
    allowance.add(MOST * 0.2)
    assert allowance.may_probe


@given(SECONDS, st.lists(st.floats(0, 100), max_size=200))
def test_a_model_that_only_loses_loses_no_more_than_is_allowed(
    step: float, losses: list[float]
) -> None:
    """A round may cost more than is left, but then none follows before it was earned."""
    allowance = DraftAllowance()
    lost = worst = 0.0
    for loss in losses:
        allowance.renew(step)
        if not allowance.is_spent:
            allowance.add(-loss)
            lost, worst = lost + loss, max(worst, loss)
    assert lost <= MOST * step + len(losses) * EARNED * step + worst + 1e-6


@given(SECONDS, st.lists(st.floats(-10, 10), max_size=50))
def test_what_was_saved_long_ago_does_not_count(step: float, changes: list[float]) -> None:
    allowance = DraftAllowance()
    allowance.renew(step)
    for seconds in changes:
        allowance.add(seconds)
        assert allowance.seconds <= MOST * step
