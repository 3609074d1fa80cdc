"""Prefixes that others can share, by themselves: without a memory around them."""

from arriero.agent.engine.kv_cache.cells import Cells
from arriero.agent.engine.kv_cache.kept_prefixes import KeptPrefixes
from arriero.agent.engine.kv_cache.least_recently_used import LeastRecentlyUsed
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.kv_cache.residency import Residency
from arriero.agent.engine.step import Clear, Copy, Edit


class Kept:
    """Two slots, and two numbers for kept prefixes."""

    def __init__(self) -> None:
        self.cells = Cells(slots=2)
        self.residency = Residency(range(2, 4), most_parked=100, policy=LeastRecentlyUsed())
        self.edits: list[Edit] = []
        self.prefixes = KeptPrefixes(self.cells, self.residency, self.edits)

    def keep(self, *keys: int) -> None:
        """A sequence of slot 0 has computed `keys` and ends."""
        assert self.prefixes.make_number()
        self.prefixes.announce(0, keys)
        self.cells.grow(0, len(keys))
        self.prefixes.keep(0, list(keys))
        self.prefixes.forget(0)
        self.prefixes.check_integrity()


def test_the_oldest_goes_when_there_is_no_number() -> None:
    kept = Kept()
    for number in (1, 2, 3):
        kept.keep(number, number)
    assert kept.prefixes.find([1, 1], 2) == Found()
    assert {kept.prefixes.find([n, n], 2).length for n in (2, 3)} == {2}


def test_what_another_holds_is_not_kept_twice() -> None:
    kept = Kept()
    kept.keep(1, 2, 3)
    kept.keep(1, 2)
    kept.keep(1, 2, 3, 4)
    assert len(list(kept.residency)) == 1
    assert kept.prefixes.find([1, 2, 3, 4], 4).length == 4


def test_a_prefix_that_is_shortened_is_found_as_far_as_it_goes() -> None:
    kept = Kept()
    kept.keep(1, 2, 3)
    [holder] = kept.residency
    kept.edits.clear()
    kept.prefixes.shorten(holder, 2)
    assert kept.edits == [Clear(holder, 2)]
    assert kept.prefixes.find([1, 2, 3], 3) == Found(2, holder)
    kept.prefixes.check_integrity()
    kept.prefixes.shorten(holder, 0)
    assert holder not in kept.prefixes


def test_keeping_copies_no_contents() -> None:
    kept = Kept()
    kept.keep(1, 2, 3)
    [holder] = kept.residency
    assert kept.edits == [Copy(0, holder, 3), Clear(0)]
    assert kept.cells.num_used == 3
