"""How far a draft can be trusted."""

import pytest

from arriero.agent.engine.confidence import Confidence
from arriero.agent.engine.recurrence import LONGEST


def test_at_first_a_longer_match_counts_more_and_each_further_token_less() -> None:
    assert Confidence().chances(2, 3) == pytest.approx([1 / 2, 1 / 2 * 2 / 3, 1 / 3 * 3 / 4])
    assert Confidence().chances(4, 1) == [0.75]


def test_each_length_of_a_match_has_its_own_chance() -> None:
    confidence = Confidence()
    for step in range(300):
        confidence.observe(2, is_right=step % 4 == 0)
        confidence.observe(3, is_right=True)
    first, second = confidence.chances(2, 2)
    assert first == pytest.approx(0.25, abs=0.05)
    assert second == pytest.approx(first, abs=0.01)


def test_the_longest_stand_for_all_beyond() -> None:
    confidence = Confidence()
    for _ in range(300):
        confidence.observe(LONGEST, is_right=True)
    assert confidence.chances(LONGEST, 8)[-1] > 0.95


def test_what_held_long_ago_is_forgotten() -> None:
    confidence = Confidence()
    for is_right in (True, False):
        for _ in range(300):
            confidence.observe(5, is_right=is_right)
    assert confidence.chances(5, 1)[0] < 0.01
