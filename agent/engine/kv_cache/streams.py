"""Cells in streams: each holder with cells has a stream of its own, and shares no cells.

Invariant: a stream has at most one owner, and a holder with cells has a stream.
"""

from ..step import Clear, Copy, Edit, Place
from .cells import Cells


class StreamCells(Cells):
    """Counts cells that are copied instead of shared; there are `count` streams."""

    def __init__(self, *, slots: int, count: int) -> None:
        super().__init__(slots=slots)
        self._free = list(range(count))
        self._streams: dict[int, int] = {}

    @property
    def has_free(self) -> bool:
        """Return whether there is a stream without an owner."""
        return bool(self._free)

    @property
    def num_taken(self) -> int:
        """The number of cells of running sequences: each slot has cells of its own."""
        return self.num_in_use

    def stream(self, holder: int) -> int | None:
        """Return the number of the holder's stream, or `None`."""
        return self._streams.get(holder)

    def open(self, holder: int) -> Edit:
        """Give the first free stream to `holder`, which must have no stream."""
        number = self._streams[holder] = self._free.pop(0)
        return Place(holder, number)

    def share(self, source: int, holder: int, length: int) -> None:
        """Copy the first `length` cells of `source` to `holder`, which has a stream."""
        if self.length(holder):
            raise ValueError(f"holder {holder} has cells already")
        self.grow(holder, length)

    def copy(self, source: int, holder: int, length: int) -> Edit:
        """Copy cells as `share` does. Returns the edit, which copies the whole stream."""
        self.share(source, holder, length)
        return Copy(source, holder, length, count=self.length(source))

    def hand_over(self, source: int, holder: int, length: int) -> list[Edit]:
        """Give `holder` the stream of `source`, with its first `length` cells.

        Returns the edits.
        """
        num_cells = self.length(source)
        number = self._streams.pop(source)
        super().close(source)
        self._streams[holder] = number
        self.grow(holder, length)
        edits: list[Edit] = [Place(holder, number, source)]
        return edits if length == num_cells else [*edits, Clear(holder, length)]

    def keep(self, slot: int, holder: int, length: int) -> list[Edit]:
        """Keep the cells of `slot` in its stream, which `holder` takes over. Returns the edits."""
        return self.hand_over(slot, holder, length)

    def close(self, holder: int) -> None:
        """Remove all cells of `holder`, and free its stream."""
        super().close(holder)
        if (number := self._streams.pop(holder, None)) is not None:
            self._free.append(number)
            self._free.sort()

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        super().check_integrity()
        numbers = [*self._free, *self._streams.values()]
        if len(set(numbers)) != len(numbers):
            raise RuntimeError(f"streams out of order: {numbers}")
        if any(self.length(one) and one not in self._streams for one in self._lengths):
            raise RuntimeError(f"streams out of order: {self._streams}, {self._lengths}")
