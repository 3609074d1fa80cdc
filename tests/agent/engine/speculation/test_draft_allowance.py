"""What a drafter loses is bounded, whatever was predicted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.speculation.draft_allowance import EARNED, FIRST, MOST, DraftAllowance

SECONDS = st.floats(0.001, 10)


def test_of_steps_of_unknown_length_nothing_is_earned() -> None:
    allowance = DraftAllowance()
    allowance.renew(0.0)
    assert allowance.seconds == 0
    allowance.renew(0.1)
    assert allowance.seconds == pytest.approx((FIRST + EARNED) * 0.1)


def test_a_few_steps_may_be_lost_at_first() -> None:
    allowance = DraftAllowance()
    allowance.renew(0.1)
    assert not allowance.is_spent
    allowance.add(-0.1 * (FIRST + 2 * EARNED))
    assert allowance.is_spent


def test_afterwards_a_small_part_of_the_time_is_earned() -> None:
    allowance = DraftAllowance()
    for _ in range(100):
        allowance.renew(1.0)
    assert allowance.seconds == pytest.approx(FIRST + 100 * EARNED)


def test_a_try_waits_for_what_it_was_to_save_for_but_for_no_more_than_can_be_saved() -> None:
    allowance = DraftAllowance()
    allowance.renew(1.0)
    assert allowance.may_try
    allowance.save_for(FIRST + 1)
    assert not allowance.may_try
    allowance.add(1)
    assert allowance.may_try
    allowance.save_for(2 * MOST)
    allowance.add(MOST)
    assert allowance.may_try
    allowance.add(-1)
    assert not allowance.may_try


@given(SECONDS, st.lists(st.floats(0, 100), max_size=200))
def test_who_only_loses_loses_no_more_than_is_allowed(step: float, losses: list[float]) -> None:
    """A round may cost more than is left, but then none follows before it was earned."""
    allowance = DraftAllowance()
    lost = worst = 0.0
    for loss in losses:
        allowance.renew(step)
        if not allowance.is_spent:
            allowance.add(-loss)
            lost, worst = lost + loss, max(worst, loss)
    assert lost <= (FIRST + len(losses) * EARNED) * step + worst + 1e-6


@given(SECONDS, st.lists(st.floats(-10, 10), max_size=50))
def test_what_was_saved_long_ago_does_not_count(step: float, changes: list[float]) -> None:
    allowance = DraftAllowance()
    allowance.renew(step)
    for seconds in changes:
        allowance.add(seconds)
        assert allowance.seconds <= MOST * step
