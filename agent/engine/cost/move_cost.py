"""The cost of copying states of cells, and the number of cells that may be copied before a step.

Copying into new memory takes ten times as long as copying into used memory, so one cost says
little about the other. While sequences stream, a step copies few enough bytes that either kind
takes moments.

States of recurrent, hybrid and sliding-window models can only be copied as a whole. While
sequences stream, a state is copied only if the copy certainly takes no longer than a step may, by
the slowest copies so far. Before any copy, measured slowest copies are assumed: 146 ms for 64 MiB
into new memory, and 6 ms into used memory.
"""

from .price import Price

MOST_BYTES = 32 * 2**20
"""Maximum bytes of states copied before a step while sequences stream."""

FIRST_BYTES = 8 * 2**20
"""Maximum bytes while sequences stream, before any copy was measured."""

MOST_BYTES_ALONE = 32 * MOST_BYTES
"""Maximum bytes of states copied before a step if no stream waits."""

SLOWEST = 400 * 2**20
"""Bytes per second of a slow copy into new memory."""

LIKELY = 2**30
"""Assumed bytes per second of a copy of a stream, before any copy was measured."""

LEAST_BYTES = 2**20
"""Minimum bytes counted for a whole state: smaller states cost hardly less."""

CAUTION = 0.9
"""Weight of the slowest price so far, which rises at once and falls slowly."""

FORGIVING = 0.9999
"""Factor on the slowest price after each step that copies nothing.

Otherwise a single copy that the system interrupted would prevent further copies of states as long
as any sequence streams.
"""

PART = 0.5
"""The share of a step's time that copying may take; the rest is for prefill."""

_FORGETTING = 0.7


class MoveCost:
    """The cost of copies. `cell_bytes` is the size of a cell's state; 0 if copying is free."""

    def __init__(self, cell_bytes: int) -> None:
        self._cell_bytes = cell_bytes
        self._byte = Price(forgetting=_FORGETTING)
        """Seconds per byte."""
        self._slowest = 1 / SLOWEST

    def observe(self, num_cells: int, seconds: float) -> None:
        """Learn that `num_cells` were copied in `seconds`."""
        num_bytes = num_cells * self._cell_bytes
        self._byte.observe(seconds, num_bytes)
        if num_bytes:
            price = seconds / max(num_bytes, LEAST_BYTES)
            self._slowest = max(price, CAUTION * self._slowest + (1 - CAUTION) * price)

    def nothing_copied(self) -> None:
        """Note that a step copied nothing."""
        self._slowest = min(self._slowest, max(FORGIVING * self._slowest, 1 / SLOWEST))

    def seconds(self, num_cells: int) -> float:
        """Return the expected seconds to copy `num_cells`; 0 if unknown."""
        return num_cells * self._cell_bytes * self._byte.value

    def within(self, seconds: float, *, is_alone: bool) -> float:
        """Return how many cells may be copied in a step of `seconds`.

        `is_alone`: no stream waits.
        """
        if not self._cell_bytes:
            return float("inf")
        most = MOST_BYTES_ALONE if is_alone else MOST_BYTES if self._byte.is_known else FIRST_BYTES
        fitting = most / self._cell_bytes
        price = self._byte.value * self._cell_bytes
        return min(fitting, PART * seconds / price) if price else fitting

    def most_whole(self, seconds: float, *, is_sure: bool) -> float:
        """Return how many cells' worth of an uncuttable state can likely be copied in `seconds`.

        With `is_sure` the copy must certainly fit. That is for copies into new memory, which only
        offloaded states take; other copies are between caches in use.
        """
        if not self._cell_bytes:
            return float("inf")
        if is_sure and LEAST_BYTES * self._slowest > seconds:
            return 0.0
        price = self._slowest if is_sure else self._byte.value or 1 / LIKELY
        return seconds / (self._cell_bytes * price)
