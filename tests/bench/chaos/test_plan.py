from itertools import islice

import pytest

from bench.chaos.faults import BY_NAME, KINDS
from bench.chaos.plan import EARLIEST, LATEST, Fault, Round, are_apart, rounds

MANY = 200


def of(seed: int) -> list[Round]:
    return list(islice(rounds(seed, KINDS, 3), MANY))


def fault(name: str, agent: int = 0) -> Fault:
    return Fault(BY_NAME[name], at=1.0, lasts=0.0, agent=agent, amount=0.5)


def test_a_seed_gives_one_plan() -> None:
    assert of(7) == of(7)
    assert of(7) != of(8)


def test_each_kind_comes_before_any_comes_again() -> None:
    firsts = [each.faults[0].kind for each in of(3)]
    for start in range(0, MANY - len(KINDS), len(KINDS)):
        assert set(firsts[start : start + len(KINDS)]) == set(KINDS)


def test_faults_are_within_their_bounds() -> None:
    for each in (each for planned in of(5) for each in planned.faults):
        assert EARLIEST <= each.at <= LATEST
        assert each.kind.shortest <= each.lasts <= each.kind.longest
        assert each.agent in range(3)
        assert 0 <= each.amount <= 1


def test_some_rounds_have_two_faults_that_strike_different_things() -> None:
    pairs = [planned.faults for planned in of(1) if len(planned.faults) > 1]
    assert 0.1 * MANY < len(pairs) < 0.4 * MANY
    assert all(are_apart(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (fault("kill-agent", 0), fault("stop-agent", 1), True),
        (fault("kill-agent", 1), fault("stop-agent", 1), False),
        (fault("kill-all"), fault("stop-agent", 1), False),
        (fault("kill-balancer"), fault("stop-agent", 1), True),
        (fault("kill-balancer"), fault("stop-balancer"), False),
    ],
)
def test_what_may_strike_together(one: Fault, other: Fault, apart: bool) -> None:
    assert are_apart(one, other) is are_apart(other, one) is apart


def test_a_fault_says_whom_it_strikes_and_for_how_long() -> None:
    stopped = Fault(BY_NAME["stop-agent"], at=1.0, lasts=2.25, agent=1, amount=0.5)
    assert str(stopped) == "stop-agent agent-2 for 2.2 s"
    assert str(fault("kill-balancer")) == "kill-balancer"
