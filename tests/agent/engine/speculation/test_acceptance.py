"""How far a draft can be trusted."""

import pytest

from arriero.agent.engine.speculation.acceptance import Acceptance
from arriero.agent.engine.speculation.prompt_lookup import LONGEST


def test_at_first_a_longer_match_counts_more_and_each_further_token_less() -> None:
    assert Acceptance().chances(2, 3) == pytest.approx([1 / 2, 1 / 2 * 2 / 3, 1 / 3 * 3 / 4])
    assert Acceptance().chances(4, 1) == [0.75]


def test_each_length_of_a_match_has_its_own_chance() -> None:
    acceptance = Acceptance()
    for step in range(300):
        acceptance.observe(2, is_right=step % 4 == 0)
        acceptance.observe(3, is_right=True)
    first, second = acceptance.chances(2, 2)
    assert first == pytest.approx(0.25, abs=0.05)
    assert second == pytest.approx(first, abs=0.01)


def test_the_longest_stand_for_all_beyond() -> None:
    acceptance = Acceptance()
    for _ in range(300):
        acceptance.observe(LONGEST, is_right=True)
    assert acceptance.chances(LONGEST, 8)[-1] > 0.95


def test_what_held_long_ago_is_forgotten() -> None:
    acceptance = Acceptance()
    for is_right in (True, False):
        for _ in range(300):
            acceptance.observe(5, is_right=is_right)
    assert acceptance.chances(5, 1)[0] < 0.01
