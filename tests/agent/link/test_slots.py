import pytest

from arriero.agent.link.slots import Slots


def test_as_many_are_taken_as_there_are() -> None:
    slots = Slots(2)
    assert [slots.take() for _ in range(3)] == [True, True, False]
    assert (slots.num_busy, slots.num_free) == (2, 0)


def test_one_that_was_freed_serves_again() -> None:
    slots = Slots(1)
    slots.take()
    slots.free()
    assert slots.num_free == 1
    assert slots.take()


def test_none_is_freed_that_was_not_taken() -> None:
    with pytest.raises(RuntimeError):
        Slots(1).free()


def test_none_is_free_where_there_is_no_room_for_anything_new() -> None:
    room = [True]
    slots = Slots(2, lambda: room[0])
    assert slots.take()
    room[0] = False
    assert (slots.num_free, slots.take(), slots.num_busy) == (0, False, 1)
    room[0] = True
    assert slots.take()
