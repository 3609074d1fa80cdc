"""The cheapest free agent, unless waiting for a full one costs less."""

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.choice import LEAST_WAIT, Best, Choice
from arriero.balancer.fleet.routing.cost import Load

A, B = LinkId(1), LinkId(2)
LONG = 30.0


def load(*, running: int = 0, slots: int = 4) -> Load:
    return Load(running=running, slots=slots, has_free_slot=running < slots)


def test_without_a_free_one_there_is_no_choice() -> None:
    best = Best()
    assert best.choice(LONG) is None
    best.look(A, load(running=4), 1.0, 1.0, None)
    assert best.choice(LONG) is None


@pytest.mark.parametrize(("cost", "running", "link"), [(2.0, 3, A), (0.5, 3, B), (1.0, 0, B)])
def test_the_cheaper_and_of_like_ones_the_idler(cost: float, running: int, link: LinkId) -> None:
    best = Best()
    best.look(A, load(running=1), 1.0, 0.0, None)
    best.look(B, load(running=running), cost, 0.0, None)
    assert best.choice(LONG) == Choice(link)


@pytest.mark.parametrize(
    ("wait", "longest", "expected"),
    [
        (2.0, LONG, Choice(B, 3.0)),  # the request waits as long as that saves
        (2.0, 1.5, Choice(B, 1.5)),
        (2.0, 0.0, Choice(A)),
        (4.0, LONG, Choice(A)),
        (2.0, LEAST_WAIT / 2, Choice(A)),
    ],
)
def test_a_full_one_that_is_worth_waiting_for(
    wait: float, longest: float, expected: Choice
) -> None:
    best = Best()
    best.look(A, load(), 4.0, 0.0, None)
    best.look(B, load(running=4), 1.0, wait, None)
    assert best.choice(longest) == expected
