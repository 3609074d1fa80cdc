"""What copying states of cells costs, and how many cells may be copied before a step.

Copying into memory for the first time takes ten times as long as copying into it again, so one
cost says little about the other. While sequences stream, no more bytes are copied at once than take
moments either way.

States of recurrent, hybrid and sliding-window models can only be had whole. While sequences stream,
one is copied where it surely takes no longer than a step may, by the slowest copies so far; where
nothing is known, by the slowest that were measured: 146 ms for 64 MiB into new memory, and 6 into
the same again.
"""

from .price import Price

MOST_BYTES = 32 * 2**20
"""Most bytes of states that are copied before a step beside streams."""

FIRST_BYTES = 8 * 2**20
"""Most bytes beside streams before anything is known."""

MOST_BYTES_ALONE = 32 * MOST_BYTES
"""Most bytes of states that are copied before a step where no stream waits."""

SLOWEST = 400 * 2**20
"""Bytes a second of a copy into memory that was never touched, where that is slow."""

LIKELY = 2**30
"""Bytes a second of a copy of a stream, where nothing is known."""

LEAST_BYTES = 2**20
"""A whole state with fewer counts as one of so many: what it takes hardly depends on its size."""

CAUTION = 0.9
"""How slowly it is believed that whole copies are faster than the slowest."""

FORGIVING = 0.9999
"""What is left of the slowest price after each step that copies nothing. A single copy that the
system interrupted would else keep states from being copied for as long as anybody streams."""

PART = 0.5
"""The part of a step's time that copying may take: the rest is for prefill."""

_FORGETTING = 0.7


class MoveCost:
    """`cell_bytes` is the size of a cell's state; 0 where it costs nothing.

    The state of any number of cells has `fixed_bytes` besides, where it can only be had whole.
    """

    def __init__(self, *, cell_bytes: int, fixed_bytes: int = 0) -> None:
        self._cell_bytes = cell_bytes
        self._fixed_bytes = fixed_bytes
        self._byte = Price(forgetting=_FORGETTING)
        """Seconds a byte."""
        self._slowest = 1 / SLOWEST

    def observe(self, num_cells: int, seconds: float) -> None:
        """`num_cells` were copied in `seconds`."""
        num_bytes = self._bytes(num_cells)
        self._byte.observe(seconds, num_bytes)
        if num_bytes:
            price = seconds / max(num_bytes, LEAST_BYTES)
            self._slowest = max(price, CAUTION * self._slowest + (1 - CAUTION) * price)

    def nothing_copied(self) -> None:
        """A step is over that copied nothing."""
        self._slowest = min(self._slowest, max(FORGIVING * self._slowest, 1 / SLOWEST))

    def seconds(self, num_cells: int) -> float:
        """What copying `num_cells` takes; 0 where nothing is known."""
        return self._bytes(num_cells) * self._byte.value

    def within(self, seconds: float, *, is_alone: bool) -> float:
        """How many cells may be copied in a step of `seconds`; `is_alone`: no stream waits."""
        if not self._cell_bytes:
            return float("inf")
        most = MOST_BYTES_ALONE if is_alone else MOST_BYTES if self._byte.is_known else FIRST_BYTES
        fitting = most / self._cell_bytes
        price = self._byte.value * self._cell_bytes
        return min(fitting, PART * seconds / price) if price else fitting

    def fits_whole(self, num_cells: int, seconds: float) -> bool:
        """Whether a state that cannot be cut is surely copied in `seconds`."""
        return max(self._bytes(num_cells), LEAST_BYTES) * self._slowest <= seconds

    def most_whole(self, seconds: float, *, is_sure: bool) -> float:
        """How many cells' states, which cannot be cut, are likely to be copied in `seconds`.

        That is between caches that are in use already: only what is parked takes new memory, and
        then it has to be `is_sure`.
        """
        if not self._cell_bytes:
            return float("inf")
        if is_sure and LEAST_BYTES * self._slowest > seconds:
            return 0.0
        price = self._slowest if is_sure else self._byte.value or 1 / LIKELY
        return seconds / (self._cell_bytes * price)

    def _bytes(self, num_cells: int) -> int:
        return num_cells * self._cell_bytes + (self._fixed_bytes if num_cells else 0)
