"""The limit of cells that may be copied to or from host memory before the next step."""

from collections.abc import Iterator
from math import floor

MOST_IN_PIECE = 512
"""Maximum cells of a piece that is copied at once."""

LEAST_IN_PIECE = 64
"""Cells that may be copied before any step. Fewer are not parked, since more are soon needed."""


class Allowance:
    """Limits the cells copied before a step. There is no limit before the first `renew`."""

    def __init__(self) -> None:
        self.num_moved = 0
        """Cells that are copied before the next step."""
        self._num_owed = 0
        self._most_moved = float("inf")
        self.most_whole = float("inf")
        """Cells' worth of an uncuttable state that may be copied as one piece."""

    @property
    def num_left(self) -> float:
        """Cells that may still be copied."""
        return max(0.0, self._most_moved - self.num_moved)

    @property
    def piece(self) -> int:
        """Maximum cells of the next piece; the first piece of a step may have `LEAST_IN_PIECE`."""
        most = self.num_left if self.num_moved else max(self.num_left, LEAST_IN_PIECE)
        return floor(min(most, MOST_IN_PIECE))

    def renew(self, num_cells: float, most_whole: float = float("inf")) -> None:
        """Begin a step, before which about `num_cells` may be copied; sets `most_whole`."""
        self._most_moved = num_cells
        self.most_whole = most_whole
        self.num_moved, self._num_owed = self._num_owed, 0

    def owe(self, num_cells: int) -> None:
        """Reserve `num_cells` of the next step's limit for a copy that cannot be refused."""
        self._num_owed += num_cells

    def has_room(self, num_cells: int) -> bool:
        """Return whether a piece of `num_cells` may still be copied. The first piece may exceed
        the limit.
        """
        first = not self.num_moved and num_cells <= self.most_whole
        return not num_cells or first or num_cells <= self.num_left

    def is_possible(self, num_cells: int) -> bool:
        """Return whether a piece of `num_cells` could be copied before a step without other
        copies.
        """
        return num_cells <= max(self._most_moved, self.most_whole)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the start and length of each piece to copy now, from `start` up to `end`."""
        while start < end and (count := self.take_some(end - start)):
            yield start, count
            start += count

    def take(self, num_cells: int) -> None:
        """Count `num_cells` that are copied before the next step."""
        self.num_moved += num_cells

    def take_some(self, num_cells: int) -> int:
        """Return how many of `num_cells` are copied now as one piece."""
        count = min(self.piece, num_cells)
        self.take(count)
        return count
