"""What copying states of cells costs, and how many cells may be copied before a step.

Copying into memory for the first time takes ten times as long as copying into it again, so one
cost says little about the other. While somebody streams, no more bytes are
copied at once than take moments either way.
"""

MOST_BYTES = 32 * 2**20
"""Of states that are copied before a step beside streams."""

FIRST_BYTES = 8 * 2**20
"""The same before anything is known."""

MOST_BYTES_ALONE = 32 * MOST_BYTES
"""Of states that are copied before a step with nobody to stall."""

PART = 0.5
"""The part of a step's time that copying may take: the rest is for reading prompts."""

_FORGETTING = 0.7


class MoveCost:
    """`cell_bytes` is the size of a cell's state; 0 where it costs nothing."""

    def __init__(self, *, cell_bytes: int) -> None:
        self._cell_bytes = cell_bytes
        self._num_cells = 0.0
        self._seconds = 0.0

    def observe(self, num_cells: int, seconds: float) -> None:
        """`num_cells` were copied in `seconds`."""
        self._num_cells = _FORGETTING * self._num_cells + num_cells
        self._seconds = _FORGETTING * self._seconds + seconds

    def seconds(self, num_cells: int) -> float:
        """What copying `num_cells` takes; 0 where nothing is known."""
        return num_cells * self._seconds / self._num_cells if self._num_cells else 0.0

    def within(self, seconds: float, *, is_alone: bool) -> float:
        """How many cells may be copied in a step of `seconds`; `is_alone`: nobody streams."""
        if not self._cell_bytes:
            return float("inf")
        most = MOST_BYTES_ALONE if is_alone else MOST_BYTES if self._num_cells else FIRST_BYTES
        fitting = most / self._cell_bytes
        price = self.seconds(1)
        return min(fitting, PART * seconds / price) if price else fitting
