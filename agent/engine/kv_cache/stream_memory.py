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

from .handed import Handed, HandOut
from .memory import Policy
from .prefix_tree import Found
from .streams import StreamCells
from .unified_memory import UnifiedMemory


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
