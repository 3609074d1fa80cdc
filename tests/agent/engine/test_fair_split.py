"""Sharing a budget evenly."""

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
        ([1, 1, 1, 1], 2, [0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_examples(wants: list[float], budget: float, shares: list[float]) -> None:
    assert split_fairly(wants, budget) == shares


@given(
    wants=st.lists(st.floats(0, 100), max_size=20),
    budget=st.floats(0, 500),
)
def test_fair(wants: list[float], budget: float) -> None:
    shares = split_fairly(wants, budget)
    assert sum(shares) == pytest.approx(min(budget, sum(wants)), abs=1e-9)
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    # Who got less than wanted is behind nobody else.
    behind = [s for s, want in zip(shares, wants, strict=True) if s < want]
    assert not behind or min(behind) >= max(shares) - 1e-9
