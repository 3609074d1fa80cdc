"""Who is kept where, and who goes when."""

import pytest

from arriero.agent.engine.shelf import Shelf


def test_the_oldest_is_the_one_used_longest_ago() -> None:
    shelf = Shelf(range(4, 7), most_parked=10)
    first, second, third = (shelf.put() for _ in range(3))
    assert not shelf.has_free
    shelf.touch(first)
    assert shelf.residents() == (second, third, first)
    assert shelf.oldest == shelf.oldest_resident == second
    shelf.park(third, 5)
    assert shelf.oldest == third, "parked rather than resident"
    assert shelf.oldest_resident == second
    shelf.remove(third)
    assert shelf.has_free
    assert {*shelf} == {first, second}
    shelf.check_integrity()


def test_who_goes_for_another() -> None:
    shelf = Shelf(range(5), most_parked=10)
    first, second, third = (shelf.put() for _ in range(3))
    shelf.park(first, 4)
    shelf.park(second, 6)
    assert shelf.in_the_way(0, sparing=None) == []
    assert shelf.in_the_way(3, sparing=None) == [first]
    assert shelf.in_the_way(3, sparing=first) == [second]
    assert shelf.in_the_way(9, sparing=None) == [first, second]
    assert shelf.in_the_way(9, sparing=first) is None
    assert shelf.in_the_way(11, sparing=None) is None
    shelf.touch(first)
    assert shelf.in_the_way(3, sparing=None) == [second]
    assert third in shelf
    assert shelf.num_parked == 10
    assert (shelf.length_parked(first), shelf.length_parked(third)) == (4, None)


def test_more_than_may_be_parked_is_out_of_order() -> None:
    shelf = Shelf(range(2), most_parked=3)
    shelf.park(shelf.put(), 4)
    with pytest.raises(RuntimeError, match="4 cells parked"):
        shelf.check_integrity()
