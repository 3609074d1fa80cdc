"""What of kept prefixes is parked, and whose pieces go for others."""

import pytest

from arriero.agent.engine.kv_cache.parked_pieces import ParkedPieces

FIRST, SECOND, THIRD = range(4, 7)


def test_pieces_come_back_in_the_opposite_order() -> None:
    parked = ParkedPieces(most_parked=10)
    for length in (4, 3, 1):
        parked.park(FIRST, length)
    assert [length for _, length in parked.pieces(FIRST)] == [1, 3, 4]
    assert parked.restore(FIRST) == (2, 1)
    assert (parked.length(FIRST), parked.num_parked) == (7, 7)
    assert parked.forget(FIRST) == (0, 1)
    assert (parked.length(FIRST), parked.num_parked) == (0, 0)
    parked.check_integrity()


def test_who_goes_for_another() -> None:
    parked = ParkedPieces(most_parked=10)
    parked.park(FIRST, 4)
    parked.park(SECOND, 6)
    order = [FIRST, SECOND, THIRD]
    assert parked.in_the_way(0, among=order, sparing=()) == []
    assert parked.in_the_way(3, among=order, sparing=()) == [FIRST]
    assert parked.in_the_way(3, among=order, sparing=[FIRST]) == [SECOND]
    assert parked.in_the_way(9, among=order, sparing=()) == [FIRST, SECOND]
    assert parked.in_the_way(9, among=order, sparing=[FIRST]) is None
    assert parked.in_the_way(11, among=order, sparing=()) is None
    assert parked.in_the_way(3, among=[SECOND, FIRST], sparing=()) == [SECOND]


def test_more_than_may_be_parked_is_out_of_order() -> None:
    parked = ParkedPieces(most_parked=3)
    parked.park(FIRST, 4)
    with pytest.raises(RuntimeError, match="4 cells parked"):
        parked.check_integrity()


def test_what_was_read_from_disk_may_take_more_by_itself() -> None:
    parked = ParkedPieces(most_parked=3)
    blocks = parked.adopt(FIRST, (4, 5))
    assert parked.pieces(FIRST) == ((blocks[0], 4), (blocks[1], 5))
    parked.check_integrity()
    parked.park(SECOND, 1)
    with pytest.raises(RuntimeError, match="10 cells parked"):
        parked.check_integrity()
