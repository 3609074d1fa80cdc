"""Which names of prefixes are held, and which are gone."""

from arriero.agent.engine.kv_cache.prefix_tree import PrefixMarks
from arriero.agent.engine.statistics import Gone


def test_a_key_is_gone_when_its_last_mark_is() -> None:
    marks = PrefixMarks()
    assert marks.add(7)
    assert marks.add(7)
    marks.release(7)
    assert 7 in marks
    assert not marks.take_gone(9)
    marks.release(7)
    assert len(marks) == 0
    assert marks.take_gone(9) == Gone((7,))
    assert not marks.take_gone(9), "each is told once"


def test_what_came_back_is_not_gone() -> None:
    marks = PrefixMarks()
    marks.add(7)
    marks.release(7)
    marks.add(7)
    assert not marks.take_gone(9)
    marks.absent(7)
    assert not marks.take_gone(9), "another mark of it is here"


def test_some_at_a_time() -> None:
    marks = PrefixMarks()
    for key in range(5):
        marks.absent(key)
    taken = [marks.take_gone(2).keys for _ in range(4)]
    assert [len(keys) for keys in taken] == [2, 2, 1, 0]
    assert sorted(key for keys in taken for key in keys) == [*range(5)]


def test_a_mark_without_room_counts_as_gone() -> None:
    marks = PrefixMarks(max_marks=1)
    assert marks.add(1)
    assert not marks.add(2)
    assert marks.add(1)
    assert marks.take_gone(9) == Gone((2,))


def test_when_too_many_are_gone_everything_is() -> None:
    marks = PrefixMarks(max_gone=2)
    marks.add(9)
    for key in range(3):
        marks.absent(key)
    assert marks.take_gone(9) == Gone(everything=True)
    assert not marks.take_gone(9)
    assert 9 in marks
