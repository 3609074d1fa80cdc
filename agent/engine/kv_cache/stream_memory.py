"""A KV cache of its own, a stream, for each running sequence and for as many kept prefixes as fit.

What a token attends to lies together, so nobody's steps pass over others' cells. In return a prefix
is copied where it cannot be handed over. A kept prefix keeps the stream it was computed in, until a
newcomer needs that: one that goes on from all of it gets the stream as it is. Otherwise the least
recently used makes room. It is parked where it is worth that, and then the newcomers copy from
host memory; it goes where others have nearly all of it.

A stream's state can only be copied as a whole. The first copy before a step may take as long as a
step; whoever needs a further one begins a step later. A prefix whose copy would surely take longer
is computed again.
"""

from collections.abc import Collection, Sequence

from ..prompt import border
from ..prompt_store.stored_prompt import StoredPrompt
from ..sequence import SequenceId
from ..step import Adopt, Clear, Discard, Duplicate, Edit, Place, Save, SaveState, Swap
from .allowance import Allowance
from .prefix_marks import Mark, PrefixMarks
from .prefix_tree import Found
from .stream_eviction import StreamEviction
from .stream_holders import StreamHolders


class StreamMemory:
    """`num_streams` with `num_cells` in all; slots and kept prefixes are numbers below `holders`.

    Of kept prefixes up to `most_parked` cells go to host memory.
    """

    can_share = True
    has_pieces = True

    def __init__(
        self, *, slots: int, holders: int, num_streams: int, num_cells: int, most_parked: int
    ) -> None:
        self.allowance = Allowance()
        self.num_cells = num_cells
        self._limit = num_cells
        self._edits: list[Edit] = []
        self._keys: dict[int, list[int]] = {}  # of slots that may be shared whole, and grow
        self._holders = StreamHolders(
            slots=slots,
            holders=holders,
            num_streams=num_streams,
            most_parked=most_parked,
            edits=self._edits,
        )
        self._eviction = StreamEviction(self._holders, self.allowance, self._edits)

    # ---- counts

    @property
    def num_used(self) -> int:
        """Cells that are not free."""
        return sum(self._holders.lengths.values())

    @property
    def num_kept(self) -> int:
        """Cells of kept prefixes."""
        return self.num_used - self._holders.num_in_use

    @property
    def num_parked(self) -> int:
        """Cells' worth of kept prefixes in host memory."""
        return self._holders.residency.num_parked

    @property
    def num_available(self) -> int:
        """Cells that slots could still get."""
        return self._limit - self._holders.num_in_use

    @property
    def num_free(self) -> int:
        """The same: kept prefixes take no cells that slots could get."""
        return self.num_available

    @property
    def has_own_cells(self) -> bool:
        """Whether each slot has cells for a whole sequence: as long as no step found less room."""
        return self._limit == self.num_cells

    @property
    def marks(self) -> PrefixMarks:
        """The marks on all prefixes that others can share."""
        return self._holders.tree.marks

    def length(self, slot: int) -> int:
        """Cells of `slot`."""
        return self._holders.lengths.get(slot, 0)

    def place(self, slot: int) -> int:
        """The number of its stream."""
        return self._holders.streams[slot]

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """All of them: what is shared is copied."""
        return num_tokens

    @property
    def can_keep(self) -> bool:
        """Whether prefixes can be kept at all."""
        return self._holders.residency.has_free or any(True for _ in self._holders.residency)

    def is_present(self, found: Found) -> bool:
        """Whether what has to be copied for it may still be copied before the next step."""
        return self.allowance.has_room(self._eviction.num_copied(found))

    def num_loadable(self, stored: StoredPrompt, keys: Sequence[int], most: int) -> int:
        """With how many of `keys`, at most `most`, a sequence can begin out of `stored`."""
        return stored.num_common(keys, most) if stored.pieces and not stored.checkpoints else 0

    def saves(
        self, id: SequenceId, slot: int, start: int, done: Collection[int]
    ) -> list[Save | SaveState]:
        """What to hand out of `slot` from `start` on, as far as may be copied now."""
        pieces = self.allowance.pieces(start, self.length(slot))
        return [Save(id, slot, *piece) for piece in pieces]

    has_checkpoints = False

    def hand_out(self, keys: Sequence[int]) -> None:
        """There are no checkpoints."""

    def checkpoints(self, keys: Sequence[int]) -> tuple[int, ...]:
        """There are none."""
        return ()

    may_copy = True

    def exportable(self, keys: Sequence[int], start: int) -> tuple[int, int] | None:
        """Who has the cells of `keys` from position `start` on, and how many.

        None where a stream's whole state takes too long to copy beside those who generate.
        """
        found = self._found(keys, len(keys))
        if found.source is None or found.length <= start:
            return None
        if self._holders.num_computed(found.source) > self.allowance.most_whole:
            return None
        return found.source, found.length - start

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that can be shared now or soon."""
        if most < 1:
            return Found()
        found = self._found(keys, most)
        if found.source is None:
            return found
        source = self._eviction.cheapest(found.source, list(keys[: found.length]))
        found = Found(found.length, source, found.promised, found.promised_by)
        return found if self._eviction.num_copied(found) <= self.allowance.most_whole else Found()

    def enter(
        self,
        slot: int,
        keys: list[int],
        found: Found,
        *,
        most_shared: int | None = None,
        marks: Sequence[Mark] = (),
        borders: Sequence[int] = (),
    ) -> None:
        """A sequence gets `slot`, beginning with what was `found`."""
        source = found.source
        if source is not None:
            self._holders.use(source)
        if source is not None and self._eviction.goes_with_its_stream(source, found.length):
            self._holders.hand_over(source, slot, found.length)
        else:
            self._open(slot, sparing=source)
            if source is not None:
                self._duplicate(source, slot, found.length)
        self._holders.announce(slot, keys, most_shared, marks)
        if most_shared is None:
            self._keys[slot] = keys

    def fetch(self, found: Found) -> bool:
        """Nothing comes back before a sequence begins with it: see `is_present`."""
        return self.is_present(found)

    can_extend = False

    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """`stored`, which is whole, is a kept prefix from now on, parked: its number, if any."""
        if not self._holders.make_number():
            return None
        holder = self._holders.residency.put()
        self._holders.tree.insert(holder, stored.prompt.keys)
        self._holders.use(holder)
        length = len(stored.prompt)
        in_the_way = self._holders.residency.in_the_way(length, sparing=())
        parked = [one for one in self._holders.residency if self._holders.residency.parked(one)]
        for one in parked if in_the_way is None else in_the_way:
            self._holders.drop(one)
        self._holders.residency.adopt(holder, [length])
        self._edits.append(Adopt(holder, stored))
        return holder

    def load(
        self,
        slot: int,
        keys: list[int],
        stored: StoredPrompt,
        length: int,
        *,
        marks: Sequence[Mark] = (),
        borders: Sequence[int] = (),
    ) -> None:
        """Not with streams: there is always a number for a kept prefix, which is `adopt`ed."""
        raise RuntimeError("with streams a stored prompt is adopted as a kept prefix")

    def expect(self, slot: int, length: int) -> None:
        """What is computed is found, however long it is."""

    def next_border(self, slot: int) -> None:
        """Prefixes can end anywhere."""

    def grow(self, slot: int, count: int) -> None:
        """`count` more tokens of `slot` were computed."""
        self._holders.lengths[slot] += count

    def discard(self, slot: int, start: int, count: int) -> None:
        """`count` tokens of `slot` go, from `start` on; those after them move up."""
        self._holders.lengths[slot] -= count
        self._edits.append(Discard(slot, start, count))

    def truncate(self, slot: int, length: int) -> None:
        """Only the first `length` tokens of `slot` stay."""
        self._holders.lengths[slot] = length
        self._edits.append(Clear(slot, length))

    def leave(self, slot: int) -> None:
        """The sequence of `slot` is gone; what it computed is kept, in its stream."""
        if self._holders.make_number():
            self._catch_up(slot)
            keys = self._holders.tree.keys(slot)
            num_computed = border(keys, min(self._holders.lengths[slot], len(keys)))
            if num_computed:
                self._holders.keep(slot, keys[:num_computed])
        self.clear(slot)

    def preempt(self, slot: int) -> None:
        """The sequence of `slot` gives up its cells, and nothing of them is kept."""
        self.clear(slot)

    def clear(self, slot: int) -> None:
        """Give up the cells of `slot`."""
        self._holders.forget(slot)
        self._keys.pop(slot, None)

    def sweep(self, slot: int) -> None:
        """Clear what a step may have written to `slot` without being accounted for."""
        self._edits.append(Clear(slot, self._holders.lengths[slot]))

    def arrange(self, slots: Sequence[int]) -> None:
        """Bring the streams of `slots` side by side, if that may be copied now.

        Cells that are about to move up are copied only when they have.
        """
        swaps = self._holders.streams.swaps(slots, self._holders.lengths.__getitem__)
        count = sum(num_cells for _, _, num_cells in swaps)
        is_moving = any(isinstance(edit, Discard) for edit in self._edits)
        if is_moving or not self.allowance.has_room(count):
            return
        for first, second, num_cells in swaps:
            self._holders.streams.swap(first, second)
            self._edits.append(Swap(first, second, num_cells))
            self.allowance.take(num_cells)

    # ---- room

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Nobody has to go: each slot has its own. How many cells are free."""
        return self.num_free

    def empty_cells(self) -> bool:
        """No kept prefix is in the way."""
        return False

    def lose(self, holder: int) -> tuple[int, ...]:
        """What was parked as `holder` is lost, and nothing else."""
        if holder in self._holders.residency:
            self._holders.drop(holder)
        return ()

    def lower_limit(self, num_free: int) -> None:
        """Count at most `num_free` cells as free from now on."""
        self._limit = min(self.num_cells, self._holders.num_in_use + num_free)

    def raise_limit(self, num_free: int) -> None:
        """Count `num_free` cells as free again, as far as there are as many."""
        self._limit = max(self._limit, min(self.num_cells, self._holders.num_in_use + num_free))

    def trust(self) -> None:
        """Count all cells again."""
        self._limit = self.num_cells

    def take_edits(self) -> tuple[Edit, ...]:
        """What to do to the cells before the next batch is computed."""
        edits = tuple(self._edits)
        self._edits.clear()
        return edits

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        self._holders.check_integrity()
        if not all(slot in self._holders.used_at for slot in self._keys):
            raise RuntimeError("memory out of order: histories")

    # ---- inside

    def _found(self, keys: Sequence[int], most: int) -> Found:
        for slot in self._keys:
            self._catch_up(slot)
        holders = self._holders
        return holders.tree.find(
            keys, most=most, computed=holders.num_computed, used_at=holders.used_at
        )

    def _open(self, slot: int, *, sparing: int | None) -> None:
        """`slot` gets an empty stream, for which a kept prefix may have to go."""
        self._eviction.make_room(sparing=sparing)
        holders = self._holders
        self._edits.append(Place(slot, holders.streams.put(slot, beside=holders.running)))
        holders.lengths[slot] = 0

    def _duplicate(self, source: int, slot: int, length: int) -> None:
        count = self._holders.num_computed(source)
        self._edits.append(Duplicate(source, slot, length, count))
        self._holders.lengths[slot] = length
        self.allowance.take(count)

    def _catch_up(self, slot: int) -> None:
        """Enter the tokens that were computed since the last time."""
        keys = self._keys.get(slot)
        if keys is None:
            return
        known, computed = self._holders.tree.length(slot), self._holders.lengths[slot]
        if known < computed:
            self._holders.tree.extend(slot, keys[known:computed])
