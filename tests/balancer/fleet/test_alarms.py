"""Alarms over deadlines that move both ways."""

import pytest

from arriero.balancer.fleet.alarms import Alarms


def alarms_over(deadlines: dict[str, float]) -> Alarms[str]:
    return Alarms(lambda key: deadlines[key])


def test_a_deadline_that_moved_later_is_found_out_when_its_old_time_comes() -> None:
    deadlines = {"a": 1.0, "b": 2.0}
    alarms = alarms_over(deadlines)
    for key in deadlines:
        alarms.arm(key)
    deadlines["a"] = 5.0
    assert alarms.next() == 1.0
    assert alarms.due(1.0) == []
    assert alarms.next() == 2.0
    assert alarms.due(5.0) == ["b", "a"]
    assert alarms.next() is None


def test_a_deadline_that_came_nearer_counts_once_armed_again() -> None:
    deadlines = {"a": 10.0}
    alarms = alarms_over(deadlines)
    alarms.arm("a")
    deadlines["a"] = 3.0
    with pytest.raises(RuntimeError):
        alarms.check_integrity()
    alarms.arm("a")
    alarms.check_integrity()
    assert alarms.due(3.0) == ["a"]


def test_arming_again_for_later_costs_nothing_and_keeps_the_earlier_time() -> None:
    deadlines = {"a": 1.0}
    alarms = alarms_over(deadlines)
    alarms.arm("a")
    deadlines["a"] = 4.0
    alarms.arm("a")
    assert alarms.next() == 1.0


def test_what_is_disarmed_is_never_due() -> None:
    deadlines = {"a": 1.0}
    alarms = alarms_over(deadlines)
    alarms.arm("a")
    assert "a" in alarms
    alarms.disarm("a")
    alarms.disarm("a")
    assert alarms.due(9.0) == []
    assert "a" not in alarms
