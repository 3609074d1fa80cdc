import pytest

from bench.simulation.machine import Kind, Machine


def test_work_takes_what_it_takes_alone() -> None:
    machine = Machine(reading=(1.0, 3.0))
    until = machine.begin(Kind.READING, 2.0, 10.0)
    assert machine.due(Kind.READING, until) == pytest.approx(12.0)
    assert not machine.has_come(Kind.READING, until, 11.9)
    assert machine.has_come(Kind.READING, until, 12.0)


def test_it_is_slower_for_as_long_as_others_compute() -> None:
    machine = Machine(generating=(1.0, 2.0))
    first = machine.begin(Kind.GENERATING, 2.0, 0.0)
    second = machine.begin(Kind.GENERATING, 0.5, 1.0)
    assert machine.due(Kind.GENERATING, second) == pytest.approx(2.0)
    assert machine.due(Kind.GENERATING, first) == pytest.approx(3.0)
    assert machine.has_come(Kind.GENERATING, second, 2.0)
    machine.end(2.0)
    assert machine.due(Kind.GENERATING, first) == pytest.approx(2.5)
    assert machine.has_come(Kind.GENERATING, first, 2.5)


def test_each_kind_of_work_has_a_slowdown_of_its_own() -> None:
    machine = Machine(reading=(1.0, 1.5), generating=(1.0, 3.0))
    read = machine.begin(Kind.READING, 1.0, 0.0)
    generated = machine.begin(Kind.GENERATING, 1.0, 0.0)
    assert machine.due(Kind.READING, read) == pytest.approx(1.5)
    assert machine.due(Kind.GENERATING, generated) == pytest.approx(3.0)


def test_more_hosts_than_are_told_of_count_as_the_last() -> None:
    machine = Machine(reading=(1.0, 2.0))
    for _ in range(4):
        until = machine.begin(Kind.READING, 1.0, 0.0)
    assert machine.due(Kind.READING, until) == pytest.approx(2.0)
    assert machine.num_busy == 4
