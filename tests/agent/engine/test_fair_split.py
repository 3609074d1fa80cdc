"""Sharing a budget between prompts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.fair_split import split_fairly


@pytest.mark.parametrize(
    ("wants", "budget", "shares"),
    [
        ([], 10, []),
        ([5], 10, [5]),
        ([50, 50], 10, [5, 5]),
        ([50, 2, 50], 12, [5, 2, 5]),
        ([3, 50], 10, [3, 7]),
        ([1, 1, 1], 2, [0, 1, 1]),
    ],
)
def test_examples(wants: list[int], budget: int, shares: list[int]) -> None:
    assert split_fairly(wants, budget) == shares


@given(wants=st.lists(st.integers(1, 100), max_size=20), budget=st.integers(0, 500))
def test_fair(wants: list[int], budget: int) -> None:
    shares = split_fairly(wants, budget)
    assert sum(shares) == min(budget, sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    # Who got less than wanted is at most one token behind everyone else.
    behind = [s for s, want in zip(shares, wants, strict=True) if s < want]
    assert not behind or min(behind) >= max(shares) - 1


@given(wants=st.lists(st.integers(1, 100), min_size=1, max_size=20), more=st.integers(0, 50))
def test_a_token_for_everyone_if_there_is_one(wants: list[int], more: int) -> None:
    assert min(split_fairly(wants, len(wants) + more)) >= 1
