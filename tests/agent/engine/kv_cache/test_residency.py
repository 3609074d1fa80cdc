"""Kept prefixes by their last use, and what of them is parked."""

import pytest

from arriero.agent.engine.kv_cache.least_recently_used import LeastRecentlyUsed
from arriero.agent.engine.kv_cache.residency import Residency


def test_the_one_that_is_worth_least_goes_first() -> None:
    residency = Residency(range(4, 7), most_parked=10, policy=LeastRecentlyUsed())
    first, second, third = (residency.put() for _ in range(3))
    assert not residency.has_free
    residency.use(first, 5)
    assert [*residency] == [second, third, first]
    assert residency.least == second
    residency.park(third, 5)
    assert residency.least == third, "parked rather than in the cells"
    residency.remove(third)
    assert residency.has_free
    assert {*residency} == {first, second}
    residency.check_integrity()


def test_pieces_come_back_in_the_opposite_order() -> None:
    residency = Residency(range(1), most_parked=10, policy=LeastRecentlyUsed())
    holder = residency.put()
    for length in (4, 3, 1):
        residency.park(holder, length)
    assert [length for _, length in residency.pieces(holder)] == [1, 3, 4]
    assert residency.restore(holder) == (2, 1)
    assert (residency.parked(holder), residency.num_parked) == (7, 7)
    assert residency.forget_parked(holder) == (0, 1)
    assert (residency.parked(holder), residency.num_parked) == (0, 0)
    residency.check_integrity()


def test_who_goes_for_another() -> None:
    residency = Residency(range(5), most_parked=10, policy=LeastRecentlyUsed())
    first, second, third = (residency.put() for _ in range(3))
    residency.park(first, 4)
    residency.park(second, 6)
    assert residency.in_the_way(0, sparing=()) == []
    assert residency.in_the_way(3, sparing=()) == [first]
    assert residency.in_the_way(3, sparing=[first]) == [second]
    assert residency.in_the_way(9, sparing=()) == [first, second]
    assert residency.in_the_way(9, sparing=[first]) is None
    assert residency.in_the_way(11, sparing=()) is None
    residency.use(first, 5)
    assert residency.in_the_way(3, sparing=()) == [second]
    assert third in residency
    assert (residency.parked(first), residency.parked(third)) == (4, 0)


def test_more_than_may_be_parked_is_out_of_order() -> None:
    residency = Residency(range(2), most_parked=3, policy=LeastRecentlyUsed())
    residency.park(residency.put(), 4)
    with pytest.raises(RuntimeError, match="4 cells parked"):
        residency.check_integrity()


def test_what_was_read_from_disk_may_take_more_by_itself() -> None:
    residency = Residency(range(2), most_parked=3, policy=LeastRecentlyUsed())
    adopted, other = residency.put(), residency.put()
    blocks = residency.adopt(adopted, (4, 5))
    assert residency.pieces(adopted) == ((blocks[0], 4), (blocks[1], 5))
    residency.check_integrity()
    residency.park(other, 1)
    with pytest.raises(RuntimeError, match="10 cells parked"):
        residency.check_integrity()
