import pytest

from bench.simulation.machine import ALONE, READING, Machine


def test_work_takes_what_it_takes_alone() -> None:
    machine = Machine([(1.0, 3.0)])
    until = machine.begin(READING, 2.0, 10.0)
    assert machine.due(READING, until) == pytest.approx(12.0)
    assert not machine.has_come(READING, until, 11.9)
    assert machine.has_come(READING, until, 12.0)


def test_it_is_slower_for_as_long_as_others_compute() -> None:
    machine = Machine([ALONE, (1.0, 2.0)])
    first = machine.begin(1, 2.0, 0.0)
    second = machine.begin(1, 0.5, 1.0)
    assert machine.due(1, second) == pytest.approx(2.0)
    assert machine.due(1, first) == pytest.approx(3.0)
    assert machine.has_come(1, second, 2.0)
    machine.end(2.0)
    assert machine.due(1, first) == pytest.approx(2.5)
    assert machine.has_come(1, first, 2.5)


def test_each_kind_of_work_has_a_slowdown_of_its_own() -> None:
    machine = Machine([(1.0, 1.5), (1.0, 3.0), (1.0, 2.0)])
    read = machine.begin(READING, 1.0, 0.0)
    for_one = machine.begin(1, 1.0, 0.0)
    for_two = machine.begin(2, 1.0, 0.0)
    assert machine.due(READING, read) == pytest.approx(1.5)
    assert machine.due(1, for_one) == pytest.approx(3.0)
    assert machine.due(2, for_two) == pytest.approx(2.0)


def test_more_hosts_and_kinds_than_are_told_of_count_as_the_last() -> None:
    machine = Machine([ALONE, (1.0, 2.0)])
    for _ in range(4):
        until = machine.begin(7, 1.0, 0.0)
    assert machine.due(7, until) == pytest.approx(2.0)
    assert machine.num_busy == 4
