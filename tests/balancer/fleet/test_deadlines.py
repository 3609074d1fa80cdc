"""Deadlines that move both ways."""

import pytest

from arriero.balancer.fleet.deadlines import Deadlines, earliest


def deadlines_over(times: dict[str, float]) -> Deadlines[str]:
    return Deadlines(lambda key: times[key])


def test_a_deadline_that_moved_later_is_found_out_when_its_old_time_comes() -> None:
    times = {"a": 1.0, "b": 2.0}
    waiting = deadlines_over(times)
    for key in times:
        waiting.arm(key)
    times["a"] = 5.0
    assert waiting.next() == 1.0
    assert waiting.due(1.0) == []
    assert waiting.next() == 2.0
    assert waiting.due(5.0) == ["b", "a"]
    assert waiting.next() is None


def test_a_deadline_that_came_nearer_counts_once_armed_again() -> None:
    times = {"a": 10.0}
    waiting = deadlines_over(times)
    waiting.arm("a")
    times["a"] = 3.0
    with pytest.raises(RuntimeError):
        waiting.check_integrity()
    waiting.arm("a")
    waiting.check_integrity()
    assert waiting.due(3.0) == ["a"]


def test_arming_again_for_later_costs_nothing_and_keeps_the_earlier_time() -> None:
    times = {"a": 1.0}
    waiting = deadlines_over(times)
    waiting.arm("a")
    times["a"] = 4.0
    waiting.arm("a")
    assert waiting.next() == 1.0


def test_what_is_disarmed_is_never_due() -> None:
    times = {"a": 1.0}
    waiting = deadlines_over(times)
    waiting.arm("a")
    assert "a" in waiting
    waiting.disarm("a")
    waiting.disarm("a")
    assert waiting.due(9.0) == []
    assert "a" not in waiting


def test_the_earliest_of_several_times() -> None:
    assert earliest(None, 3.0, 2.0, None, 4.0) == 2.0
    assert earliest(None, None) is None
