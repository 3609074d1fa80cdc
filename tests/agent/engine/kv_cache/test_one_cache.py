"""What is counted, whoever holds it."""

from arriero.agent.engine.kv_cache.cells import Cells
from arriero.agent.engine.kv_cache.one_cache import OneCache
from arriero.agent.engine.step import Clear
from arriero.shared.reports.statistics import Cells as Counts


class Cache(OneCache):
    """With a kept prefix of two cells, and a sequence that goes on from it with three more."""

    num_parked = 7

    def __init__(self) -> None:
        super().__init__(num_cells=10, cells=Cells(slots=1))
        self._cells.grow(1, 2)
        self._cells.share(1, 0, 2)
        self._cells.grow(0, 3)
        self._cells.grow(2, 1)
        self._edits.append(Clear(0))


def test_cells_are_in_use_kept_or_free() -> None:
    cache = Cache()
    assert (cache.num_used, cache.num_kept) == (6, 1)
    assert (cache.num_available, cache.num_free) == (5, 4)
    assert cache.length(0) == 5
    assert not cache.has_own_cells
    assert cache.counts == Counts(total=10, used=5, kept=1, parked=7)


def test_a_limit_holds_until_it_is_raised() -> None:
    cache = Cache()
    cache.lower_limit(1)
    assert (cache.num_available, cache.num_free) == (2, 1)
    cache.raise_limit(2)
    assert cache.num_free == 2
    cache.raise_limit(1)
    assert cache.num_free == 2
    cache.raise_limit()
    assert cache.num_free == 4
    cache.check_integrity()


def test_edits_are_taken_once() -> None:
    cache = Cache()
    assert cache.take_edits() == (Clear(0),)
    assert cache.take_edits() == ()


def test_nobody_has_a_place() -> None:
    assert Cache().place(0) == 0
