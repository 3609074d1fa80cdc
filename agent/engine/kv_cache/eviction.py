"""Eviction: kept prefixes leave the cells, for host memory or for good.

They are parked where cells are needed, and where somebody else begins whose steps would pass over
them. A running stream waits for each copy, so no more is parked before a step than its allowance.
Where a cell is needed beyond that, a prefix that shares all of its cells with others gives them up.
"""

from ..step import Clear, Edit, Offload
from .allowance import LEAST_IN_PIECE, MOST_IN_PIECE, Allowance
from .cells import Cells
from .kept_prefixes import KeptPrefixes
from .residency import Residency

ENOUGH_AT_ONCE = 1024
"""Cells: when somebody begins, no further prefix is parked after so many."""


class Eviction:
    """Parks those that are worth least first, from their ends on."""

    def __init__(
        self,
        cells: Cells,
        residency: Residency,
        prefixes: KeptPrefixes,
        allowance: Allowance,
        edits: list[Edit],
    ) -> None:
        self._cells = cells
        self._residency = residency
        self._prefixes = prefixes
        self._allowance = allowance
        self._edits = edits

    def next_to_go(self, *, sparing: int | None = None) -> int | None:
        """The kept prefix to evict from: the one that is worth least.

        First those with cells that nobody else has; then those that share them with each other.
        """
        alone = self._cells.kept_alone - {sparing}
        if alone:
            return min(alone, key=self._residency.worth.__getitem__)
        others = (one for one in self._residency if one != sparing and self._cells.length(one))
        return next(filter(self._num_not_in_use, others), None)

    def evict(self, num_missing: int, *, num_urgent: int, sparing: int | None) -> bool:
        """Some of the `num_missing` cells become free; `num_urgent` of them whatever that takes.

        False: no more may be copied before this step. Raises `RuntimeError` if there is nothing to
        evict.
        """
        holder = self.next_to_go(sparing=sparing)
        if holder is None:
            raise RuntimeError(f"{num_missing} cells more asked for than are available")
        self._residency.goes(holder)
        if num_urgent and not self._allowance.piece and not self._cells.num_alone(holder):
            # Parking it would free nothing, and go on until all who share these cells are parked.
            length = self._cells.length(holder) - self._num_not_in_use(holder)
            self._prefixes.shorten(holder, length)
            return True
        allowed = max(self._allowance.piece, num_urgent)
        wanted = min(self._num_evictable(holder), max(num_missing, LEAST_IN_PIECE), MOST_IN_PIECE)
        if not self._can_park(holder, min(wanted, max(allowed, 1)), sparing=sparing):
            self._prefixes.shorten(holder, self._cells.length(holder) - wanted)
            return True
        if not allowed:
            return False
        self._park(holder, min(wanted, allowed), sparing=sparing)
        return True

    def clear_the_way(self, *, sparing: int | None) -> None:
        """Park what is not needed by the one that begins, as much of it as takes a moment."""
        if not self._residency.most_parked:
            return
        start = self._allowance.num_moved
        for holder in sorted(
            self._cells.kept_alone - {sparing}, key=self._residency.worth.__getitem__
        ):
            if self._allowance.num_left < 1 or self._allowance.num_moved - start >= ENOUGH_AT_ONCE:
                return
            while count := self._num_parkable(holder):
                if not self._can_park(holder, count, sparing=sparing):
                    break
                self._park(holder, count, sparing=sparing)

    def _num_evictable(self, holder: int) -> int:
        return self._cells.num_alone(holder) or self._num_not_in_use(holder)

    def _num_not_in_use(self, holder: int) -> int:
        return self._cells.num_not_in_use(holder, self._cells.length(holder))

    def _num_parkable(self, holder: int) -> int:
        """Cells of a kept prefix that nobody else has, and that may be copied now as a piece."""
        most = int(min(self._allowance.num_left, MOST_IN_PIECE))
        return min(self._cells.num_alone(holder), most)

    def _can_park(self, holder: int, count: int, *, sparing: int | None) -> bool:
        """Whether its last `count` cells have a place in host memory.

        Not if they would have to go for what comes before them.
        """
        if self._prefixes.num_computed(holder) > self._residency.most_parked:
            return False
        return self._in_the_way(holder, count, sparing=sparing) is not None

    def _in_the_way(self, holder: int, count: int, *, sparing: int | None) -> list[int] | None:
        spared = {holder} if sparing is None else {holder, sparing}
        return self._residency.in_the_way(count, sparing=spared)

    def _park(self, holder: int, count: int, *, sparing: int | None) -> None:
        for one in self._in_the_way(holder, count, sparing=sparing) or ():
            self._residency.goes(one)
            self._prefixes.forget_parked(one)
        start = self._cells.length(holder) - count
        self._cells.truncate(holder, start)
        block = self._residency.park(holder, count)
        self._edits += [Offload(holder, start, count, block), Clear(holder, start)]
        self._allowance.take(count)
