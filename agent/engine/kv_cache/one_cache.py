"""What all memories have in common that are one cache for all sequences: counts, limits, edits."""

from ....shared.reports.statistics import Cells as Counts
from ..step import Edit
from .allowance import Allowance
from .cells import Cells


class OneCache:
    """`num_cells` that any holder can get."""

    def __init__(self, *, num_cells: int, cells: Cells) -> None:
        self.num_cells = num_cells
        self.allowance = Allowance()
        self._limit = num_cells
        self._edits: list[Edit] = []
        self._cells = cells

    @property
    def num_used(self) -> int:
        """Cells that are not free."""
        return self._cells.num_used

    @property
    def num_kept(self) -> int:
        """Cells that only kept prefixes have."""
        return self._cells.num_used - self._cells.num_in_use

    @property
    def num_available(self) -> int:
        """Cells that running sequences could still get, if all kept prefixes went."""
        return self._limit - self._cells.num_in_use

    @property
    def num_free(self) -> int:
        """Cells that can be had without giving anything up; negative where too many are taken."""
        return self._limit - self._cells.num_used

    @property
    def has_own_cells(self) -> bool:
        """They are everybody's."""
        return False

    @property
    def num_parked(self) -> int:
        """Cells' worth of kept prefixes in host memory."""
        raise NotImplementedError

    @property
    def counts(self) -> Counts:
        """What the cells hold, and how many cells' worth of prefixes is in host memory."""
        return Counts(
            total=self.num_cells,
            used=self._cells.num_in_use,
            kept=self.num_kept,
            parked=self.num_parked,
        )

    def length(self, slot: int) -> int:
        """Cells of `slot`."""
        return self._cells.length(slot)

    def place(self, slot: int) -> int:
        """Nobody has one: the order in a batch does not matter."""
        return 0

    def lower_limit(self, num_free: int) -> None:
        """Count at most `num_free` cells as free from now on."""
        self._limit = min(self.num_cells, self._limit - self.num_free + num_free)

    def raise_limit(self, num_free: int | None = None) -> None:
        """Count `num_free` cells as free again, as far as there are as many; without it, all."""
        if num_free is None:
            self._limit = self.num_cells
            return
        at_least = min(self.num_cells, self._limit - self.num_free + num_free)
        self._limit = max(self._limit, at_least)

    def take_edits(self) -> tuple[Edit, ...]:
        """What to do to the cells before the next batch is computed."""
        edits = tuple(self._edits)
        self._edits.clear()
        return edits

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        self._cells.check_integrity()
        _check(self._cells.num_used <= self.num_cells, f"{self._cells.num_used} cells used")
        _check(self._limit <= self.num_cells, f"limit {self._limit}")


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"memory out of order: {finding}")
