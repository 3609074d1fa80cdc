"""A KV cache of its own, a stream, for each running sequence and for as many kept prefixes as fit.

What a token attends to lies together, in the order of its positions, whatever runs beside it. So
engines that are deterministic have streams. In return a prefix is copied if it cannot be handed
over: as a whole, for a stream's state cannot be copied in parts. A kept prefix stays in the stream
where it was computed until a newcomer needs that stream; then the prefix that is worth least goes.
A newcomer that begins with all of a prefix gets its stream as it is.

The first copy before a step may take as long as a step; a sequence that needs a further one begins
a step later. A prefix whose copy would surely take longer is computed again.
"""

from collections.abc import Sequence

from ..prompt_store.stored_prompt import StoredPrompt
from .handed import Handed
from .prefix_tree import Found
from .streams import StreamCells
from .unified_memory import UnifiedMemory


class StreamMemory(UnifiedMemory):
    """`num_streams` with `num_cells` in all; slots and kept prefixes are numbers below `holders`.

    Nothing leaves the cells for host memory. Up to `most_parked` cells of prefixes that were read
    from elsewhere are there until somebody begins with them.
    """

    def __init__(
        self, *, slots: int, holders: int, num_streams: int, num_cells: int, most_parked: int
    ) -> None:
        self._streams = StreamCells(slots=slots, count=num_streams)
        super().__init__(
            slots=slots,
            holders=holders,
            num_cells=num_cells,
            can_share=True,
            most_parked=most_parked,
            cells=self._streams,
        )

    @property
    def num_free(self) -> int:
        """All that slots could get: kept prefixes take none of these."""
        return self.num_available

    def place(self, slot: int) -> int:
        """The number of its stream."""
        number = self._streams.stream(slot)
        if number is None:
            raise RuntimeError(f"slot {slot} has no stream")
        return number

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """All of them: what is shared is copied."""
        return num_tokens

    def _is_present(self, found: Found) -> bool:
        """Whether it is in the cells, and may still be copied before the next step."""
        is_here = super()._is_present(found)
        return is_here and self.allowance.has_room(self._num_copied(found))

    def hand_out(self, keys: Sequence[int], start: int) -> list[Handed] | None:
        """Nothing if a stream's whole state takes too long to copy beside those who generate."""
        source = self.find(keys, len(keys)).source
        if source is not None and self._num_computed(source) > self.allowance.most_whole:
            return None
        return super().hand_out(keys, start)

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys` that can be shared, unless its copy takes too long."""
        found = super().find(keys, most)
        if found.source is None or self._goes_with_its_stream(found):
            return found
        num_copied = self._num_computed(found.source)
        return found if num_copied <= self.allowance.most_whole else Found()

    def _begin(self, slot: int, found: Found, stored: StoredPrompt | None) -> None:
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
        """Nobody has to go: each slot has its own. How many cells are free."""
        return self.num_free

    def _make_room(self, count: int, *, num_urgent: int = 0, sparing: int | None = None) -> int:
        return count

    def _open(self, holder: int) -> None:
        """`holder` has a stream, for which a kept prefix may have to go."""
        if self._streams.stream(holder) is not None:
            return
        if not self._streams.has_free:
            self._leave_cells(self._stream_to_go())
        self._edits.append(self._streams.open(holder))

    def _stream_to_go(self) -> int:
        """The kept prefix to give up its stream."""
        return next(one for one in self._by_worth() if self._streams.stream(one) is not None)

    def _goes_with_its_stream(self, found: Found) -> bool:
        """Whether a sequence that begins so gets the stream, and nothing is lost by that.

        Or no more than would be lost anyway, if the prefix has to make room.
        """
        source = found.source
        if source is None or source not in self._worth:
            return False
        if self._streams.length(source) < found.length:
            return False
        is_whole = found.length == self._num_computed(source)
        return is_whole or (not self._streams.has_free and self._stream_to_go() == source)

    def _num_copied(self, found: Found) -> int:
        """Cells that are copied when a sequence begins with what was `found`."""
        if found.source is None or self._goes_with_its_stream(found):
            return 0
        return self._streams.length(found.source)
