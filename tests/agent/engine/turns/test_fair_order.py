"""The order in which prompts are read."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.turns.fair_order import FairOrder, split_fairly


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


Arrivals = list[list[int]]
"""Lengths of the prompts that arrive before each step."""

ARRIVALS = st.lists(st.lists(st.integers(1, 60), max_size=4), min_size=1, max_size=12)
BUDGETS = st.lists(st.integers(0, 80), min_size=1, max_size=12)


def share(order: FairOrder, wants: dict[int, int], budget: int) -> dict[int, int]:
    return dict(order.share({SequenceId(id): want for id, want in wants.items()}, budget))


def at_one_pace(wants: dict[int, float], budget: int) -> dict[int, float]:
    return dict(zip(wants, split_fairly(list(wants.values()), budget), strict=True))


def steps_until_through(
    arrivals: Arrivals,
    budgets: list[int],
    read: Callable[[dict[int, float], int], dict[int, float]],
) -> dict[int, int]:
    """By prompt; budgets repeat, the last one generously."""
    left: dict[int, float] = {}
    through: dict[int, int] = {}
    num_arrived = step = 0
    while step < len(arrivals) or left:
        for length in arrivals[step] if step < len(arrivals) else ():
            left[num_arrived] = length
            num_arrived += 1
        budget = budgets[step % len(budgets)] if step < 100 else 1000
        for id, part in read(left, budget).items():
            left[id] -= part
        for id in [id for id, rest in left.items() if rest < 1e-4]:
            del left[id]
            through[id] = step
        step += 1
    return through


def test_equal_prompts_come_one_after_the_other() -> None:
    order = FairOrder()
    assert share(order, {1: 66, 2: 66, 3: 66}, 70) == {1: 66, 2: 4}
    assert share(order, {2: 62, 3: 66}, 70) == {2: 62, 3: 8}
    assert share(order, {3: 58}, 70) == {3: 58}


def test_a_short_prompt_overtakes_a_long_one() -> None:
    order = FairOrder()
    assert share(order, {1: 500}, 70) == {1: 70}
    assert share(order, {1: 430, 2: 20}, 70) == {2: 20, 1: 50}


def test_a_long_prompt_does_not_wait_for_ever_behind_short_ones() -> None:
    order = FairOrder()
    left, step = 500, 0
    while left and step < 100:
        step += 1
        shares = share(order, {0: left, step: 20}, 40)
        left -= shares.get(0, 0)
        assert shares.get(step) == 20 or not left
    assert step == 25


def test_nothing_is_shared_out_where_there_is_no_budget_and_the_order_stays() -> None:
    order = FairOrder()
    assert share(order, {1: 50, 2: 50}, 60) == {1: 50, 2: 10}
    assert share(order, {2: 40, 3: 39}, 0) == {}
    assert share(order, {2: 40, 3: 39}, 50) == {2: 40, 3: 10}


@given(arrivals=ARRIVALS, budgets=BUDGETS)
def test_nobody_is_through_later_than_at_one_pace(arrivals: Arrivals, budgets: list[int]) -> None:
    order = FairOrder()

    def in_order(left: dict[int, float], budget: int) -> dict[int, float]:
        wants = {id: int(rest) for id, rest in left.items()}
        shares = share(order, wants, budget)
        order.check_integrity()
        assert sum(shares.values()) == min(budget, sum(wants.values()))
        assert all(0 < part <= wants[id] for id, part in shares.items())
        return {id: float(part) for id, part in shares.items()}

    fair = steps_until_through(arrivals, budgets, at_one_pace)
    ours = steps_until_through(arrivals, budgets, in_order)
    assert ours.keys() == fair.keys()
    assert all(ours[id] <= fair[id] for id in fair)
    share(order, {}, 100)
    assert len(order) == 0


@given(data=st.data())
def test_what_is_remembered_ends_with_the_reading(data: st.DataObject) -> None:
    """Also where prompts are cancelled, and where steps were not computed."""
    order = FairOrder()
    left: dict[int, int] = {}
    for arrival in range(data.draw(st.integers(1, 30))):
        left[arrival] = data.draw(st.integers(1, 60))
        shares = share(order, left, data.draw(st.integers(0, 60)))
        if data.draw(st.booleans()):
            left = {id: rest - shares.get(id, 0) for id, rest in left.items()}
            left = {id: rest for id, rest in left.items() if rest}
        for id in data.draw(st.sets(st.sampled_from(sorted(left)))) if left else ():
            del left[id]
        order.check_integrity()
    share(order, {}, 0)
    assert len(order) == 0


@pytest.mark.parametrize("budget", [0, 10])
def test_without_prompts(budget: int) -> None:
    assert share(FairOrder(), {}, budget) == {}
