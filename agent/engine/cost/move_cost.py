"""What copying states of cells costs, and how many cells may be copied before a step.

Copying into memory that was not used before takes ten times as long as into memory that was, so
what was learnt of the one says little of the other. While somebody streams, no more bytes are
copied at once than take moments either way.
"""

from .linear_cost import LinearCost

MOST_BYTES = 64 * 2**20
"""Of states that are copied before a step beside streams."""

MOST_BYTES_ALONE = 16 * MOST_BYTES
"""The same with nobody to stall."""

PART = 0.5
"""The part of a step's time that copying may take: the rest is for reading prompts."""


class MoveCost:
    """`cell_bytes` is the size of a cell's state; 0 where it costs nothing."""

    def __init__(self, *, cell_bytes: int) -> None:
        self._cell_bytes = cell_bytes
        self._line = LinearCost()

    def observe(self, num_cells: int, seconds: float) -> None:
        """`num_cells` were copied in `seconds`."""
        self._line.observe(num_cells, seconds)

    def seconds(self, num_cells: int) -> float:
        """What copying `num_cells` takes; 0 where nothing is known."""
        return self._line.predict(num_cells) if num_cells else 0.0

    def within(self, seconds: float, *, is_alone: bool) -> float:
        """How many cells may be copied in a step of `seconds`; `is_alone`: nobody streams."""
        most_bytes = MOST_BYTES_ALONE if is_alone else MOST_BYTES
        most = most_bytes / self._cell_bytes if self._cell_bytes else float("inf")
        return min(most, self._line.most_within(PART * seconds))
