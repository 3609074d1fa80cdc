"""Who is kept where, and who goes when."""

import pytest

from arriero.agent.engine.kv_cache.residency import Residency


def test_the_oldest_is_the_one_used_longest_ago() -> None:
    residency = Residency(range(4, 7), most_parked=10)
    first, second, third = (residency.put() for _ in range(3))
    assert not residency.has_free
    residency.touch(first)
    assert residency.residents() == (second, third, first)
    assert residency.oldest == residency.oldest_resident == second
    residency.park(third, 5)
    assert residency.oldest == third, "parked rather than resident"
    assert residency.oldest_resident == second
    residency.remove(third)
    assert residency.has_free
    assert {*residency} == {first, second}
    residency.check_integrity()


def test_who_goes_for_another() -> None:
    residency = Residency(range(5), most_parked=10)
    first, second, third = (residency.put() for _ in range(3))
    residency.park(first, 4)
    residency.park(second, 6)
    assert residency.in_the_way(0, sparing=None) == []
    assert residency.in_the_way(3, sparing=None) == [first]
    assert residency.in_the_way(3, sparing=first) == [second]
    assert residency.in_the_way(9, sparing=None) == [first, second]
    assert residency.in_the_way(9, sparing=first) is None
    assert residency.in_the_way(11, sparing=None) is None
    residency.touch(first)
    assert residency.in_the_way(3, sparing=None) == [second]
    assert third in residency
    assert residency.num_parked == 10
    assert (residency.length_parked(first), residency.length_parked(third)) == (4, None)


def test_more_than_may_be_parked_is_out_of_order() -> None:
    residency = Residency(range(2), most_parked=3)
    residency.park(residency.put(), 4)
    with pytest.raises(RuntimeError, match="4 cells parked"):
        residency.check_integrity()
