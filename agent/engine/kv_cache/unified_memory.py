"""The memory of models whose sequences can give up their last tokens: prefixes can end anywhere.

A prefix is shared by reference. Kept prefixes leave the cells for host memory when cells are
needed, from where they come back in a hundredth of the time that computing them takes. They also
leave when somebody else begins, where others' cells are not free: on processors every token that is
generated passes over every cell in use, and after some thirty tokens that has cost as much as
moving it. Only then, for cells that are freed in the middle of an answer are taken out of order,
and llama.cpp's sums come out a little differently: the same seed would not give the same text
twice. A model that cannot share (it cannot give up a suffix of a sequence, or may have lost the
start of one) keeps nothing.

Prefixes move piece by piece, from their end on, and come back from their beginning on. How many
cells may move before the next step says the `allowance`: a running stream waits for that. If a cell
is needed beyond that, a prefix that shares all of its cells with others gives them up. Prompts that
were read from disk are prefixes, too, that begin parked.
"""

from collections.abc import Collection, Iterator, Sequence

from ..prompt import border
from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Clear, Copy, Discard, Free, Offload, Put, ReadOut, Restore
from .allowance import LEAST_IN_PIECE, MOST_IN_PIECE
from .cells import Cells
from .handed import Handed, cells
from .least_recently_used import LeastRecentlyUsed
from .memory import Memory, Policy
from .parked_pieces import ParkedPieces
from .prefix_marks import Mark
from .prefix_tree import Found

ENOUGH_AT_ONCE = 1024
"""Cells: when somebody begins, no further prefix is parked after so many."""


class UnifiedMemory(Memory):
    """Of the kept prefixes up to `most_parked` cells go to host memory.

    With `is_compact` they go as soon as somebody else begins.
    """

    def __init__(
        self,
        *,
        slots: int,
        holders: int,
        num_cells: int,
        can_share: bool,
        most_parked: int,
        is_compact: bool = False,
        cells: Cells | None = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(
            slots=slots,
            holders=holders if can_share else slots,
            num_cells=num_cells,
            cells=cells or Cells(slots=slots),
            policy=policy or LeastRecentlyUsed(),
        )
        self._is_compact = is_compact
        self._can_share = can_share
        self._unshared: dict[int, Sequence[Mark]] = {}
        """Marks of slots that are not shared, until their prompts are read."""
        self._parked = ParkedPieces(most_parked=most_parked)

    @property
    def num_parked(self) -> int:
        """Cells' worth of kept prefixes in host memory."""
        return self._parked.num_parked

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """Of the last parked piece that is needed, all comes back."""
        if found.source is None:
            return num_tokens
        present = min(found.length, self._cells.length(found.source))
        in_use = present - self._cells.num_not_in_use(found.source, present) if present else 0
        whole = present + sum(self._pieces_to(found))
        return max(num_tokens, whole) - in_use

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        super().check_integrity()
        self._parked.check_integrity()

    # ---- to and from elsewhere

    def num_loadable(self, stored: StoredPrompt, keys: Sequence[int], most: int) -> int:
        """All that both have in common; without sharing, `stored` as a whole or nothing."""
        if not stored.pieces or stored.checkpoints:
            return 0
        common = stored.num_common(keys, most)
        return common if self._can_share or common == len(stored.prompt) else 0

    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """All its pieces are parked, however many they are."""
        if source is not None:
            self._use(source)
        if not self._make_number():
            return None
        if stored.start and (source is None or self._cells.length(source) < stored.start):
            return None  # it had the oldest number
        length = len(stored.prompt) - stored.start
        in_the_way = self._parked.in_the_way(length, among=self._by_worth(), sparing={source})
        for one in self._by_worth() if in_the_way is None else in_the_way:
            self._forget_parked(one)
        holder = self._free.pop()
        self._tree.insert(holder, stored.prompt.keys)
        self._worth[holder] = 0.0
        if stored.start and source is not None:
            self._cells.share(source, holder, stored.start)
            self._edits.append(Copy(source, holder, stored.start))
        blocks = self._parked.adopt(holder, [piece.num_tokens for piece in stored.pieces])
        for block, piece in zip(blocks, stored.pieces, strict=True):
            self._edits.append(Put(block, piece.state))
        self._use(holder)
        if stored.start:
            self._drop_within(holder)
        return holder

    def saves(self, slot: int, start: int, done: Collection[int]) -> list[Handed]:
        """Of states that can only be had whole that is one before a step."""
        end = self._cells.length(slot)
        if self._can_share:
            pieces = [*self.allowance.pieces(start, end)]
        elif self.allowance.num_moved:
            pieces = []
        else:
            self.allowance.take(end - start)
            pieces = [(start, end - start)]
        return [cells(slot, *piece, self._parked.new_block()) for piece in pieces]

    def hand_out(self, keys: Sequence[int], start: int) -> list[Handed] | None:
        """Pieces of the cells, and of the parked pieces after them."""
        found = self.find(keys, len(keys))
        if found.source is None or found.length <= start:
            return None
        parts: list[Handed] = []
        for block, first, end in self._extents(found.source):
            end = min(end, found.length)
            while start < end:
                if not (count := self.allowance.take_some(end - start)):
                    return parts
                if block is None:
                    parts.append(cells(found.source, start, count, self._parked.new_block()))
                else:
                    parts.append(Handed("cells", count, (ReadOut(block, start - first, count),)))
                start += count
        return parts

    def _extents(self, holder: int) -> Iterator[tuple[int | None, int, int]]:
        """Where a prefix is, from its start on: the block, `None` for cells, and its positions."""
        end = self._cells.length(holder)
        yield None, 0, end
        for block, length in self._parked.pieces(holder):
            yield block, end, end + length
            end += length

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that can be shared now or soon."""
        return super().find(keys, most) if self._can_share else Found()

    def fetch(self, found: Found) -> Found | None:
        """As many parked pieces come back as are needed."""
        source = found.source
        if source is None or self._is_present(found):
            return found
        self._use(source)
        for length in self._pieces_to(found):
            if self.allowance.num_moved and length > self.allowance.num_left:
                return None
            if self._make_room(length, sparing=source) < length:
                return None
            self._open(source)
            block, _ = self._parked.restore(source)
            start = self._cells.length(source)
            self.allowance.take(length)
            self._cells.grow(source, length)
            self._edits += [Restore(source, start, length, block), Free((block,))]
        return found if self._is_present(found) else None

    def _begin(self, slot: int, found: Found, stored: StoredPrompt | None) -> None:
        if self._is_compact:
            self._clear_the_way(sparing=found.source)
        if stored is not None:
            self._load(slot, stored, found.length)
        elif found.source is not None:
            self._cells.share(found.source, slot, found.length)
            self._edits.append(Copy(found.source, slot, found.length))

    def _load(self, slot: int, stored: StoredPrompt, length: int) -> None:
        """`slot` has the first `length` tokens of `stored`, which nobody else gets."""
        self.make_room(len(stored.prompt))
        self.allowance.take(len(stored.prompt))
        for piece in stored.pieces:
            block, start = self._parked.new_block(), self._cells.length(slot)
            restore = Restore(slot, start, piece.num_tokens, block)
            self._edits += [Put(block, piece.state), restore, Free((block,))]
            self._cells.grow(slot, piece.num_tokens)
        if length < len(stored.prompt):
            self.discard(slot, length)

    def grow(self, slot: int, count: int) -> None:
        """`count` more tokens of `slot` were computed."""
        super().grow(slot, count)
        if (marks := self._unshared.get(slot)) and self._cells.length(slot) >= marks[-1][0]:
            self._are_absent(self._unshared.pop(slot))

    def discard(self, slot: int, start: int | None = None, count: int | None = None) -> None:
        """Cells that nobody shares can go, wherever they are."""
        start = self._cells.length(slot) if start is None else start
        if count is not None:
            self._cells.discard(slot, start, count)
            self._edits.append(Discard(slot, start, count))
            return
        if start < self._cells.length(slot):
            self._cells.truncate(slot, start)
        self._edits.append(Clear(slot, start))

    def leave(self, slot: int, *, keeps: bool = True) -> None:
        """The sequence of `slot` is gone; what it computed may be kept as a prefix for others."""
        super().leave(slot, keeps=keeps)
        self._unshared.pop(slot, None)

    def _announce(
        self,
        slot: int,
        keys: list[int],
        most_shared: int | None,
        marks: Sequence[Mark],
        borders: Sequence[int],
    ) -> None:
        if self._can_share:
            super()._announce(slot, keys, most_shared, marks, borders)
        else:
            self._borders[slot] = []
            self._are_absent(marks)
            self._unshared[slot] = marks

    def _are_absent(self, marks: Sequence[Mark]) -> None:
        """Report that the prompt is not shared.

        A balancer believes that it is when it sends the request and when the agent has read it.
        """
        for _, key in marks:
            self.marks.absent(key)

    # ---- kept prefixes

    def _num_computed(self, holder: int) -> int:
        """Its cells, and what of it is parked."""
        return self._cells.length(holder) + self._parked.length(holder)

    def _cost(self, holder: int) -> int:
        return self._tree.num_alone(holder, self._worth)

    def _keep(self, slot: int, *, is_over: bool) -> None:
        """All that `slot` computed is kept, unless another prefix has it already."""
        if not self._can_share or not self._make_number():
            return
        self._catch_up(slot)
        keys = self._tree.keys(slot)
        length = border(keys, min(self._cells.length(slot), len(keys)))
        if not length:
            return
        holder = self._free.pop()
        self._tree.insert(holder, keys[:length])
        if covering := self._tree.others_with_all_of(holder) & self._worth.keys():
            self._tree.remove(holder)
            self._free.append(holder)
            self._use(max(covering))
            return
        self._edits += self._cells.keep(slot, holder, length)
        self._drop_within(holder)
        self._worth[holder] = 0.0
        self._use(holder)

    def _drop_within(self, holder: int) -> None:
        """Kept prefixes go that `holder` begins with: it has all of them."""
        for within in self._tree.others_within(holder) & self._worth.keys():
            self._drop(within)

    def _numbered(self) -> Collection[int]:
        """Those that are parked, before others."""
        return [one for one in self._worth if self._parked.length(one)] or self._worth

    def _forget_parked(self, holder: int) -> None:
        """What is parked of it goes; what is in the cells stays."""
        if self._parked.length(holder):
            self._shorten(holder, self._cells.length(holder))

    def _shorten(self, holder: int, length: int) -> None:
        """A kept prefix has only its first `length` tokens, which are in the cells, or fewer.

        It does not end within media.
        """
        length = border(self._tree.keys(holder), length)
        if not length:
            self._drop(holder)
            return
        self._forget_blocks(holder)
        self._cells.truncate(holder, length)
        self._edits.append(Clear(holder, length))
        self._tree.shorten(holder, length)

    def _drop(self, holder: int) -> None:
        self._forget_blocks(holder)
        super()._drop(holder)

    def _forget_blocks(self, holder: int) -> None:
        if blocks := self._parked.forget(holder):
            self._edits.append(Free(blocks))

    def _is_present(self, found: Found) -> bool:
        """Whether all that was `found` is in the cells."""
        return found.source is None or self._cells.length(found.source) >= found.length

    def _pieces_to(self, found: Found) -> tuple[int, ...]:
        """Cells of the parked pieces that hold the rest of what was `found`."""
        if found.source is None:
            return ()
        end = self._cells.length(found.source)
        needed = []
        for _, length in self._parked.pieces(found.source):
            if end >= found.length:
                break
            needed.append(length)
            end += length
        return tuple(needed)

    def _open(self, holder: int) -> None:
        """A holder may get cells."""

    # ---- room

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Prefixes leave the cells from their ends on, those that are worth least first."""
        return self._make_room(count, num_urgent=count if num_urgent is None else num_urgent)

    def lose(self, holder: int) -> tuple[int, ...]:
        """What was parked as `holder` is lost, and nothing else."""
        if holder in self._worth:
            self._drop(holder)
        return ()

    def _make_room(self, count: int, *, num_urgent: int = 0, sparing: int | None = None) -> int:
        while (num_missing := count - self.num_free) > 0:
            num_left = max(0, num_urgent - self.num_free)
            if not self._evict(num_missing, num_urgent=num_left, sparing=sparing):
                break
        return self.num_free

    def _evict(self, num_missing: int, *, num_urgent: int, sparing: int | None) -> bool:
        """Some of the `num_missing` cells become free; `num_urgent` of them whatever that takes.

        False: no more may be copied before this step. Raises `RuntimeError` if there is nothing to
        evict.
        """
        holder = self._next_to_go(sparing=sparing)
        if holder is None:
            raise RuntimeError(f"{num_missing} cells more asked for than are available")
        self._policy.went(self._worth[holder])
        if num_urgent and not self.allowance.piece and not self._cells.num_alone(holder):
            # Parking it would free nothing, and go on until all who share these cells are parked.
            self._shorten(holder, self._cells.length(holder) - self._num_not_in_use(holder))
            return True
        allowed = max(self.allowance.piece, num_urgent)
        evictable = self._cells.num_alone(holder) or self._num_not_in_use(holder)
        wanted = min(evictable, max(num_missing, LEAST_IN_PIECE), MOST_IN_PIECE)
        if not self._can_park(holder, min(wanted, max(allowed, 1)), sparing=sparing):
            self._shorten(holder, self._cells.length(holder) - wanted)
            return True
        if not allowed:
            return False
        self._park(holder, min(wanted, allowed), sparing=sparing)
        return True

    def _clear_the_way(self, *, sparing: int | None) -> None:
        """Park what is not needed by the one that begins, as much of it as takes a moment."""
        if not self._parked.most_parked:
            return
        allowance, start = self.allowance, self.allowance.num_moved
        for holder in sorted(self._cells.kept_alone - {sparing}, key=self._worth.__getitem__):
            if allowance.num_left < 1 or allowance.num_moved - start >= ENOUGH_AT_ONCE:
                return
            while count := self._num_parkable(holder):
                if not self._can_park(holder, count, sparing=sparing):
                    break
                self._park(holder, count, sparing=sparing)

    def _num_parkable(self, holder: int) -> int:
        """Cells of a kept prefix that nobody else has, and that may be copied now as a piece."""
        most = int(min(self.allowance.num_left, MOST_IN_PIECE))
        return min(self._cells.num_alone(holder), most)

    def _can_park(self, holder: int, count: int, *, sparing: int | None) -> bool:
        """Whether its last `count` cells have a place in host memory.

        Not if they would have to go for what comes before them.
        """
        if self._num_computed(holder) > self._parked.most_parked:
            return False
        return self._in_the_way(holder, count, sparing=sparing) is not None

    def _in_the_way(self, holder: int, count: int, *, sparing: int | None) -> list[int] | None:
        if self._parked.num_parked + count <= self._parked.most_parked:
            return []
        return self._parked.in_the_way(count, among=self._by_worth(), sparing={holder, sparing})

    def _park(self, holder: int, count: int, *, sparing: int | None) -> None:
        for one in self._in_the_way(holder, count, sparing=sparing) or ():
            self._policy.went(self._worth[one])
            self._forget_parked(one)
        start = self._cells.length(holder) - count
        self._cells.truncate(holder, start)
        block = self._parked.park(holder, count)
        self._edits += [Offload(holder, start, count, block), Clear(holder, start)]
        self.allowance.take(count)
