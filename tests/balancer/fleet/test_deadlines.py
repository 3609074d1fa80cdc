"""Deadlines that move both ways."""

from dataclasses import dataclass

import pytest

from arriero.balancer.fleet.deadlines import Deadlines, earliest


@dataclass(eq=False)
class Timer:
    deadline: float
    armed_at: float | None = None


def test_a_deadline_that_moved_later_is_found_out_when_its_old_time_comes() -> None:
    waiting, a, b = Deadlines[Timer](), Timer(1.0), Timer(2.0)
    for each in (a, b):
        waiting.arm(each)
    a.deadline = 5.0
    assert waiting.next() == 1.0
    assert waiting.due(1.0) == []
    assert waiting.next() == 2.0
    assert waiting.due(5.0) == [b, a]
    assert waiting.next() is None


def test_a_deadline_that_came_nearer_counts_once_armed_again() -> None:
    waiting, a = Deadlines[Timer](), Timer(10.0)
    waiting.arm(a)
    a.deadline = 3.0
    with pytest.raises(RuntimeError):
        waiting.check_integrity()
    waiting.arm(a)
    waiting.check_integrity()
    assert waiting.due(3.0) == [a]


def test_arming_again_for_later_costs_nothing_and_keeps_the_earlier_time() -> None:
    waiting, a = Deadlines[Timer](), Timer(1.0)
    waiting.arm(a)
    a.deadline = 4.0
    waiting.arm(a)
    assert waiting.next() == 1.0


def test_what_is_disarmed_is_never_due() -> None:
    waiting, a = Deadlines[Timer](), Timer(1.0)
    waiting.arm(a)
    waiting.disarm(a)
    waiting.disarm(a)
    assert waiting.due(9.0) == []
    waiting.check_integrity()


def test_of_many_due_some_are_taken() -> None:
    waiting, all_of_them = Deadlines[Timer](), [Timer(float(n)) for n in range(5)]
    for each in all_of_them:
        waiting.arm(each)
    assert waiting.due(9.0, 2) == all_of_them[:2]
    assert waiting.due(9.0) == all_of_them[2:]


def test_what_is_armed_and_disarmed_again_and_again_takes_no_room() -> None:
    waiting, a, b = Deadlines[Timer](), Timer(1.0), Timer(1e9)
    waiting.arm(b)
    for n in range(1000):
        a.deadline = float(1000 - n)
        waiting.arm(a)
        waiting.check_integrity()
        waiting.disarm(a)
        waiting.check_integrity()
    assert waiting.next() == 1e9


def test_the_earliest_of_several_times() -> None:
    assert earliest(None, 3.0, 2.0, None, 4.0) == 2.0
    assert earliest(None, None) is None
