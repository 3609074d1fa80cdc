"""One KV cache for all: slots of running sequences, and kept prefixes of ended ones.

A prefix is shared by reference. Kept prefixes leave the cells for host memory when cells are
needed, from where they come back in a hundredth of the time that computing them takes. They also
leave when somebody else begins, where others' cells are not free: on processors every token that is
generated passes over every cell in use, and after some thirty tokens that has cost as much as
moving it. Only then, for cells that are freed in the middle of an answer are taken out of order,
and llama.cpp's sums come out a little differently: the same seed would not give the same text
twice. A model that cannot share (it cannot give up a suffix of a sequence, or may have lost the
start of one) keeps nothing.

Prefixes move piece by piece, from their end on, and come back from their beginning on. How many
cells may move before the next step says the `allowance`: a running stream waits for that. Prompts
that were read from disk are prefixes, too, that begin parked.
"""

from collections.abc import Collection, Iterator, Sequence

from ..prompt import border
from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Clear, Copy, Discard, Free, Put, ReadOut, Restore
from .allowance import MOST_IN_PIECE
from .cells import Cells
from .eviction import Eviction
from .handed import Handed, cells
from .kept_prefixes import KeptPrefixes
from .least_recently_used import LeastRecentlyUsed
from .one_cache import OneCache
from .prefix_marks import Mark, PrefixMarks
from .prefix_tree import Found
from .residency import Policy, Residency


class UnifiedMemory(OneCache):
    """`num_cells` for `slots` sequences, and for kept prefixes as many `holders` as that leaves.

    Of the kept ones up to `most_parked` cells go to host memory; with `is_compact` as soon as
    somebody else begins.
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
        super().__init__(num_cells=num_cells, cells=cells or Cells(slots=slots))
        self._is_compact = is_compact
        self.can_share = can_share
        self._keys: dict[int, list[int]] = {}  # of slots that may be shared whole, and grow
        self._unshared: dict[int, Sequence[Mark]] = {}
        """Marks of slots that are not shared, until their prompts are read."""
        self._residency = Residency(
            range(slots, holders if can_share else slots),
            most_parked=most_parked,
            policy=policy or LeastRecentlyUsed(),
        )
        self._prefixes = KeptPrefixes(self._cells, self._residency, self._edits)
        self._eviction = Eviction(
            self._cells, self._residency, self._prefixes, self.allowance, self._edits
        )

    # ---- counts

    @property
    def num_parked(self) -> int:
        """Cells' worth of kept prefixes in host memory."""
        return self._residency.num_parked

    @property
    def marks(self) -> PrefixMarks:
        """The marks on all prefixes that others can share."""
        return self._prefixes.marks

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """What `num_tokens` take of the available cells when their beginning was `found`."""
        if found.source is None:
            return num_tokens
        present = min(found.length, self._cells.length(found.source))
        in_use = present - self._cells.num_not_in_use(found.source, present) if present else 0
        whole = present + sum(self._prefixes.pieces_to(found))  # of the last piece all comes back
        return max(num_tokens, whole) - in_use

    @property
    def can_keep(self) -> bool:
        """Whether prefixes can be kept at all."""
        return self._residency.has_free or any(True for _ in self._residency)

    def is_present(self, found: Found) -> bool:
        """Whether all that was `found` is in the cells."""
        return found.source is None or self._cells.length(found.source) >= found.length

    @property
    def has_pieces(self) -> bool:
        """States can be cut where prefixes can."""
        return self.can_share

    def num_loadable(self, stored: StoredPrompt, keys: Sequence[int], most: int) -> int:
        """With how many of `keys`, at most `most`, a sequence can begin out of `stored`."""
        if not stored.pieces or stored.checkpoints:
            return 0
        common = stored.num_common(keys, most)
        return common if self.can_share or common == len(stored.prompt) else 0

    def saves(self, slot: int, start: int, done: Collection[int]) -> list[Handed]:
        """What to hand out of `slot` from `start` on, as far as may be copied now.

        Of states that can only be had whole that is one before a step.
        """
        end = self._cells.length(slot)
        if self.can_share:
            pieces = [*self.allowance.pieces(start, end)]
        elif self.allowance.num_moved:
            pieces = []
        else:
            self.allowance.take(end - start)
            pieces = [(start, end - start)]
        return [cells(slot, *piece, self._residency.new_block()) for piece in pieces]

    def checkpoints(self, keys: Sequence[int]) -> tuple[int, ...]:
        """There are none."""
        return ()

    may_copy = True

    def hand_out(self, keys: Sequence[int], start: int) -> list[Handed] | None:
        """Hand out the cached part of `keys` from `start` on, as far as it may be copied now.

        Returns `None` if no part is cached.
        """
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
                    parts.append(cells(found.source, start, count, self._residency.new_block()))
                else:
                    parts.append(Handed("cells", count, (ReadOut(block, start - first, count),)))
                start += count
        return parts

    def _extents(self, holder: int) -> Iterator[tuple[int | None, int, int]]:
        """Where a prefix is, from its start on: the block, `None` for cells, and its positions."""
        end = self._cells.length(holder)
        yield None, 0, end
        for block, length in self._prefixes.parked_pieces(holder):
            yield block, end, end + length
            end += length

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that can be shared now or soon."""
        if not self.can_share or most < 1:
            return Found()
        for slot in self._keys:
            self._catch_up(slot)
        return self._prefixes.find(keys, most)

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
        """A sequence gets `slot`, beginning with what was `found`.

        Others may share its first `most_shared` tokens, or all: then `keys` is read again later,
        as it grows. `marks` are the names of its beginnings.
        """
        if found.source is not None:
            self._prefixes.use(found.source)
        if self._is_compact:
            self._eviction.clear_the_way(sparing=found.source)
        if found.source is not None:
            self._cells.share(found.source, slot, found.length)
            self._edits.append(Copy(found.source, slot, found.length))
        self._announce(slot, keys, most_shared, marks)

    def fetch(self, found: Found) -> bool:
        """Bring back what was `found`, as far as may move now; whether all of it is present.

        There must be `num_needed` available cells.
        """
        source = found.source
        if source is None or self.is_present(found):
            return True
        self._prefixes.use(source)
        for length in self._prefixes.pieces_to(found):
            if self.allowance.num_moved and length > self.allowance.num_left:
                return False
            if self._make_room(length, sparing=source) < length:
                return False
            self._open(source)
            block, _ = self._residency.restore(source)
            start = self._cells.length(source)
            self.allowance.take(length)
            self._cells.grow(source, length)
            self._edits += [Restore(source, start, length, block), Free((block,))]
        return True

    can_extend = True

    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """`stored` is a kept prefix from now on, parked: its number, if there is one.

        What comes before its `start` it shares with `source`, which has that in the cells. Only of
        models that can share.
        """
        if source is not None:
            self._prefixes.use(source)
        if not self._prefixes.make_number():
            return None
        if stored.start and (source is None or self._cells.length(source) < stored.start):
            return None  # it had the oldest number
        holder = self._residency.put()
        self._prefixes.announce(holder, stored.prompt.keys)
        length = len(stored.prompt) - stored.start
        in_the_way = self._residency.in_the_way(length, sparing=() if source is None else {source})
        for one in tuple(self._residency) if in_the_way is None else in_the_way:
            self._prefixes.forget_parked(one)
        if stored.start and source is not None:
            self._cells.share(source, holder, stored.start)
            self._edits.append(Copy(source, holder, stored.start))
        blocks = self._residency.adopt(holder, [piece.num_tokens for piece in stored.pieces])
        for block, piece in zip(blocks, stored.pieces, strict=True):
            self._edits.append(Put(block, piece.state))
        if stored.start:
            self._prefixes.drop_within(holder)
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
        """A sequence gets `slot`, beginning with the first `length` tokens of `stored`.

        There must be as many available cells as `stored` has tokens.
        """
        self.make_room(len(stored.prompt))
        self.allowance.take(len(stored.prompt))
        for piece in stored.pieces:
            block, start = self._residency.new_block(), self._cells.length(slot)
            restore = Restore(slot, start, piece.num_tokens, block)
            self._edits += [Put(block, piece.state), restore, Free((block,))]
            self._cells.grow(slot, piece.num_tokens)
        if length < len(stored.prompt):
            self.discard(slot, length)
        self._announce(slot, keys, None, marks)

    def expect(self, slot: int, length: int) -> None:
        """What is computed is found, however long it is."""

    def next_border(self, slot: int) -> None:
        """Prefixes can end anywhere."""

    def grow(self, slot: int, count: int) -> None:
        """`count` more tokens of `slot` were computed."""
        self._cells.grow(slot, count)
        if (marks := self._unshared.get(slot)) and self._cells.length(slot) >= marks[-1][0]:
            self._are_absent(self._unshared.pop(slot))

    def discard(self, slot: int, start: int, count: int | None = None) -> None:
        """Give up `count` tokens of `slot` from `start` on; later ones move up. All by default."""
        if count is not None:
            self._cells.discard(slot, start, count)
            self._edits.append(Discard(slot, start, count))
            return
        if start < self._cells.length(slot):
            self._cells.truncate(slot, start)
        self._edits.append(Clear(slot, start))

    def leave(self, slot: int) -> None:
        """The sequence of `slot` is gone; what it computed is kept as a prefix for others."""
        if self.can_share and self._prefixes.make_number():
            self._catch_up(slot)
            keys = self._prefixes.keys(slot)
            num_computed = border(keys, min(self._cells.length(slot), len(keys)))
            if num_computed:
                self._prefixes.keep(slot, keys[:num_computed])
        self.clear(slot)

    def clear(self, slot: int) -> None:
        """Give up the cells of `slot`."""
        self._prefixes.forget(slot)
        self._keys.pop(slot, None)
        self._unshared.pop(slot, None)

    # ---- room

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Evict kept prefixes until `count` cells are free; how many then are.

        That may be fewer, where no more cells may be copied before the next step, but at least
        `num_urgent`: all if it is not given. Ask for no more than are available.
        """
        return self._make_room(count, num_urgent=count if num_urgent is None else num_urgent)

    def empty_cells(self) -> bool:
        """Evict all kept prefixes from the cells; whether there were any to evict."""
        had_any = self.num_kept > 0
        while self._eviction.next_to_go() is not None:
            self._eviction.evict(MOST_IN_PIECE, num_urgent=MOST_IN_PIECE, sparing=None)
        return had_any

    def lose(self, holder: int) -> tuple[int, ...]:
        """What was parked as `holder` is lost, and nothing else."""
        if holder in self._residency:
            self._prefixes.drop(holder)
        return ()

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        super().check_integrity()
        self._prefixes.check_integrity()
        self._residency.check_integrity()
        if not all(slot in self._prefixes for slot in self._keys):
            raise RuntimeError("memory out of order: histories")

    def _make_room(self, count: int, *, num_urgent: int = 0, sparing: int | None = None) -> int:
        while (num_missing := count - self.num_free) > 0:
            num_left = max(0, num_urgent - self.num_free)
            if not self._eviction.evict(num_missing, num_urgent=num_left, sparing=sparing):
                break
        return self.num_free

    def _open(self, holder: int) -> None:
        """A holder may get cells."""

    def _announce(
        self, slot: int, keys: list[int], most_shared: int | None, marks: Sequence[Mark]
    ) -> None:
        """Others may share what `slot` has or is going to have."""
        if self.can_share:
            self._prefixes.announce(slot, keys[:most_shared], marks)
            if most_shared is None:
                self._keys[slot] = keys
        else:
            self._are_absent(marks)
            self._unshared[slot] = marks

    def _are_absent(self, marks: Sequence[Mark]) -> None:
        """Report that the prompt is not shared.

        A balancer believes that it is when it sends the request and when the agent has read it.
        """
        for _, key in marks:
            self.marks.absent(key)

    def _catch_up(self, slot: int) -> None:
        """Enter the tokens that were computed since the last time."""
        keys = self._keys.get(slot)
        if keys is None:
            return
        known, computed = self._prefixes.length(slot), self._cells.length(slot)
        if known < computed:
            self._prefixes.extend(slot, keys[known:computed])
