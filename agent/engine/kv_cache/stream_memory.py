"""A KV cache with a stream of its own for each running sequence and for some kept prefixes.

The cells to which a token attends are contiguous, in the order of their positions, whatever else
runs. So deterministic engines use streams. The price is copying: a prefix that cannot be handed
over is copied as a whole, because a stream's state cannot be copied in parts. A kept prefix stays
in the stream where it was computed until a new sequence needs that stream. Then the prefix with
the least worth is evicted. A new sequence that begins with a whole prefix takes over the prefix's
stream.

The first copy before a step may take as long as a step. A sequence that needs a second copy begins
one step later. If copying a prefix would surely take longer than computing it, the prefix is
computed again.
"""

from collections.abc import Sequence

from ..integrity import check
from ..step import Clear, Copy, Edit, Place
from .cells import Cells
from .handed import Handed, HandOut
from .memory import Policy
from .prefix_tree import Found
from .unified_memory import UnifiedMemory


class StreamCells(Cells):
    """Counts cells that are copied instead of shared; there are `count` streams.

    Invariant: a stream has at most one owner, and a holder with cells has a stream.
    """

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
        check(len(set(numbers)) == len(numbers), f"streams {numbers}")
        without = [one for one in self._lengths if self.length(one) and one not in self._streams]
        check(not without, f"holders without a stream {without}")


class StreamMemory(UnifiedMemory):
    """The memory of an engine with `num_streams` streams, which have `num_cells` in all.

    Slots and kept prefixes are numbers below `holders`. Cells are never moved to host memory. Host
    memory holds up to `most_parked` cells of prefixes from disk or other agents until a sequence
    begins with them.
    """

    def __init__(
        self,
        *,
        slots: int,
        holders: int,
        num_streams: int,
        num_cells: int,
        policy: Policy,
        most_parked: int,
    ) -> None:
        self._streams = StreamCells(slots=slots, count=num_streams)
        super().__init__(
            slots=slots,
            holders=holders,
            num_cells=num_cells,
            policy=policy,
            most_parked=most_parked,
            cells=self._streams,
        )

    def _place(self, slot: int) -> int:
        """Return the number of the slot's stream."""
        number = self._streams.stream(slot)
        if number is None:
            raise RuntimeError(f"slot {slot} has no stream")
        return number

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """Return `num_tokens`: a shared prefix is copied, so it saves no cells."""
        return num_tokens

    def _is_present(self, found: Found) -> bool:
        """Return whether the prefix is in the cells and may be copied before the next step."""
        is_here = super()._is_present(found)
        return is_here and self.allowance.has_room(self._num_copied(found))

    def hand_out(self, keys: Sequence[int], read: HandOut) -> list[Handed] | None:
        """Return no parts if copying a stream's whole state would stall generating sequences."""
        source = self.find(keys, len(keys)).source
        if source is not None and self._num_computed(source) > self.allowance.most_whole:
            return None
        return super().hand_out(keys, read)

    def _find(self, keys: Sequence[int], most: int) -> Found:
        """Return the longest prefix of `keys` to share, unless its copy takes too long."""
        found = super()._find(keys, most)
        if found.source is None or self._goes_with_its_stream(found):
            return found
        num_copied = self._num_computed(found.source)
        return found if num_copied <= self.allowance.most_whole else Found()

    def _begin(self, slot: int, found: Found) -> None:
        source = found.source
        if source is None:
            self._open(slot)
        elif self._goes_with_its_stream(found):
            self._edits += self._streams.hand_over(source, slot, found.length)
            self._drop(source)
        else:
            self._open(slot)
            self.allowance.take(self._num_copied(found))
            self._edits.append(self._streams.copy(source, slot, found.length))

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Return the number of free cells.

        No sequence is preempted: each slot has its own cells.
        """
        return self.room.num_free

    def _make_room(self, count: int, *, num_urgent: int = 0, sparing: int | None = None) -> int:
        return count

    def _open(self, holder: int) -> None:
        """Give `holder` a stream. A kept prefix may be evicted for it."""
        if self._streams.stream(holder) is not None:
            return
        if not self._streams.has_free:
            self._leave_cells(self._stream_to_go())
        self._edits.append(self._streams.open(holder))

    def _stream_to_go(self) -> int:
        """Return the kept prefix that gives up its stream next."""
        return next(one for one in self._by_worth() if self._streams.stream(one) is not None)

    def _goes_with_its_stream(self, found: Found) -> bool:
        """Return whether a sequence that begins with `found` takes over the stream of the prefix.

        The rest of the prefix is lost then. That is acceptable only if the prefix is the next to
        be evicted.
        """
        source = found.source
        if source is None or source not in self._worth:
            return False
        if self._streams.length(source) < found.length:
            return False
        is_whole = found.length == self._num_computed(source)
        return is_whole or (not self._streams.has_free and self._stream_to_go() == source)

    def _num_copied(self, found: Found) -> int:
        """Return how many cells are copied if a sequence begins with the prefix `found`."""
        if found.source is None or self._goes_with_its_stream(found):
            return 0
        return self._streams.length(found.source)
