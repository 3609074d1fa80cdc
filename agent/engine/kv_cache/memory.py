"""The KV cache's holders: slots of running sequences, and kept prefixes of ended ones.

Everything that changes cells is recorded as an edit, to be carried out before the next batch, in
the order in which it happened here.

A prefix is shared by reference. Kept prefixes leave the cells for host memory when cells are
needed, from where they come back in a hundredth of the time that computing them takes. They also
leave when somebody else begins, where others' cells are not free: on processors every token that is
generated passes over every cell in use, and after some thirty tokens that has cost as much as
moving it. Only then, for cells that are freed in the middle of an answer are taken out of order,
and llama.cpp's sums come out a little differently: the same seed would not give the same text
twice. A model that cannot share (it cannot give up a suffix of a sequence, or may have lost the
start of one) keeps nothing.

Prefixes move piece by piece, from their end on, and come back from their beginning on. How many
cells may move before the next step is said with `allow`: a running stream waits for that. Prompts
that were read from disk are prefixes, too, that begin parked.

What a cell holds is known by its cache key (`prompt`): sequences share where their keys are equal.

Invariant: a slot's cells are its sequence's computed tokens, in order, from position 0.
"""

from collections.abc import Sequence
from math import floor

from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Adopt, Clear, Copy, Discard, Edit, Load, Park, Restore
from .cells import Cells
from .prefix_tree import Found, PrefixTree
from .residency import Residency

ENOUGH_AT_ONCE = 1024
"""Cells: when somebody begins, no further prefix is parked after so many."""

MOST_IN_PIECE = 512
"""Cells of a piece that is copied at once."""

LEAST_IN_PIECE = 64
"""Cells that are parked where fewer are needed: more will be needed soon."""


class Memory:
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
    ) -> None:
        self._is_compact = is_compact
        self.can_share = can_share
        self.num_cells = num_cells
        self._slots = slots
        self._limit = num_cells
        self._cells = Cells(slots=slots)
        self._prefixes = PrefixTree()
        self._keys: dict[int, list[int]] = {}  # of slots that may be shared whole, and grow
        self._residency = Residency(
            range(slots, holders if can_share else slots), most_parked=most_parked
        )
        self._used_at: dict[int, int] = {}
        self._num_uses = 0
        self._edits: list[Edit] = []
        self.num_moved = 0
        """Cells that are copied to or from host memory before the next step."""
        self._most_moved = float("inf")

    # ---- counts

    @property
    def num_used(self) -> int:
        """Cells that are not free."""
        return self._cells.num_used

    @property
    def num_kept(self) -> int:
        """Cells that only kept prefixes have."""
        return self._cells.num_used - self._cells.num_in_use

    @property
    def num_parked(self) -> int:
        """Cells' worth of kept prefixes in host memory."""
        return self._residency.num_parked

    @property
    def num_available(self) -> int:
        """Cells that running sequences could still get, if all kept prefixes went."""
        return self._limit - self._cells.num_in_use

    @property
    def num_free(self) -> int:
        """Cells that can be had without giving anything up; negative where too many are taken."""
        return self._limit - self._cells.num_used

    def length(self, slot: int) -> int:
        """Cells of `slot`."""
        return self._cells.length(slot)

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """What `num_tokens` take of the available cells when their beginning was `found`."""
        if found.source is None:
            return num_tokens
        present = min(found.length, self._cells.length(found.source))
        in_use = present - self._cells.num_not_in_use(found.source, present) if present else 0
        whole = present + sum(self._pieces_to(found))  # of the last piece all comes back
        return max(num_tokens, whole) - in_use

    @property
    def can_keep(self) -> bool:
        """Whether prefixes can be kept at all."""
        return self._residency.has_free or any(True for _ in self._residency)

    def is_present(self, found: Found) -> bool:
        """Whether all that was `found` is in the cells."""
        return found.source is None or self._cells.length(found.source) >= found.length

    # ---- what a step may move

    def allow(self, num_cells: float) -> None:
        """Before the next step about so many cells may be copied to or from host memory."""
        self._most_moved = num_cells
        self.num_moved = 0

    def take_allowed(self, num_cells: int) -> int:
        """How many of `num_cells` may be copied now as a piece; some before each step."""
        most = self._num_movable if self.num_moved else max(self._num_movable, LEAST_IN_PIECE)
        count = floor(min(most, num_cells, MOST_IN_PIECE))
        self.num_moved += count
        return count

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that can be shared now or soon."""
        if not self.can_share or most < 1:
            return Found()
        for slot in self._keys:
            self._catch_up(slot)
        computed = {holder: self._num_computed(holder) for holder in self._used_at}
        return self._prefixes.find(keys, most=most, computed=computed, used_at=self._used_at)

    def enter(
        self, slot: int, keys: list[int], found: Found, *, most_shared: int | None = None
    ) -> None:
        """A sequence gets `slot`, beginning with what was `found`.

        Others may share its first `most_shared` tokens, or all: then `keys` is read again later,
        as it grows.
        """
        if found.source is not None:
            self._use(found.source)
            self._clear_the_way(sparing=found.source)
            self._cells.share(found.source, slot, found.length)
            self._edits.append(Copy(found.source, slot, found.length))
        else:
            self._clear_the_way()
        self._announce(slot, keys, most_shared)

    def fetch(self, found: Found) -> bool:
        """Bring back what was `found`, as far as may move now; whether all of it is present.

        There must be `num_needed` available cells.
        """
        source = found.source
        if source is None or self.is_present(found):
            return True
        self._use(source)
        for length in self._pieces_to(found):
            if self.num_moved and length > self._num_movable:
                return False
            self._make_room(length, sparing=source)
            self.num_moved += self._residency.restore(source)
            self._cells.grow(source, length)
            self._edits.append(Restore(source, length))
        return True

    def adopt(self, stored: StoredPrompt) -> int | None:
        """`stored` is a kept prefix from now on, parked: its number, if there is one.

        Only of models that can share.
        """
        if not self._residency_has_room():
            return None
        holder = self._residency.put()
        self._prefixes.insert(holder, stored.prompt.keys)
        self._use(holder)
        length = len(stored.prompt)
        in_the_way = self._residency.in_the_way(length, sparing=())
        for one in tuple(self._residency) if in_the_way is None else in_the_way:
            self._forget_parked(one)
        self._residency.adopt(holder, [piece.num_tokens for piece in stored.pieces])
        self._edits.append(Adopt(holder, stored))
        return holder

    def load(self, slot: int, keys: list[int], stored: StoredPrompt, length: int) -> None:
        """A sequence gets `slot`, beginning with the first `length` tokens of `stored`.

        There must be as many available cells as `stored` has tokens.
        """
        self.make_room(len(stored.prompt))
        self._edits.append(Load(slot, stored))
        self._cells.grow(slot, len(stored.prompt))
        if length < len(stored.prompt):
            self.truncate(slot, length)
        self._announce(slot, keys, None)

    def grow(self, slot: int, count: int) -> None:
        """`count` more tokens of `slot` were computed."""
        self._cells.grow(slot, count)

    def discard(self, slot: int, start: int, count: int) -> None:
        """`count` tokens of `slot` go, from `start` on; those after them move up."""
        self._cells.discard(slot, start, count)
        self._edits.append(Discard(slot, start, count))

    def truncate(self, slot: int, length: int) -> None:
        """Only the first `length` tokens of `slot` stay, as far as others may not share more."""
        self._cells.truncate(slot, length)
        self._edits.append(Clear(slot, length))

    def leave(self, slot: int) -> None:
        """The sequence of `slot` is gone; what it computed is kept as a prefix for others."""
        if not self.can_share or not self._residency_has_room():
            self.clear(slot)
            return
        self._catch_up(slot)
        num_computed = min(self._cells.length(slot), self._prefixes.length(slot))
        self._keep(slot, self._prefixes.keys(slot)[:num_computed])
        self.clear(slot)

    def clear(self, slot: int) -> None:
        """Give up the cells of `slot`."""
        self._forget(slot)
        self._keys.pop(slot, None)

    def sweep(self, slot: int) -> None:
        """Clear what a step may have written to `slot` without being accounted for."""
        self._edits.append(Clear(slot, self._cells.length(slot)))

    # ---- room

    def make_room(self, count: int) -> None:
        """Evict kept prefixes until `count` cells are free. Ask for no more than are available."""
        self._make_room(count, sparing=None)

    def empty_cells(self) -> bool:
        """Evict all kept prefixes from the cells; whether there were any to evict."""
        had_any = self.num_kept > 0
        while (holder := self._next_to_go(sparing=None)) is not None:
            self._put_away(holder, MOST_IN_PIECE, sparing=None)
        return had_any

    def lose(self, holder: int) -> None:
        """What was parked as `holder` is lost."""
        if holder in self._residency:
            self._drop(holder)

    def lower_limit(self, num_free: int) -> None:
        """Count at most `num_free` cells as free from now on."""
        self._limit = min(self.num_cells, self._cells.num_used + num_free)

    def raise_limit(self, num_free: int) -> None:
        """Count `num_free` cells as free again, as far as there are as many."""
        self._limit = max(self._limit, min(self.num_cells, self._cells.num_used + num_free))

    def trust(self) -> None:
        """Count all cells again."""
        self._limit = self.num_cells

    def take_edits(self) -> tuple[Edit, ...]:
        """What to do to the cells before the next batch is computed."""
        edits, self._edits = tuple(self._edits), []
        return edits

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        self._cells.check_integrity()
        self._prefixes.check_integrity()
        _check(self._cells.num_used <= self.num_cells, f"{self._cells.num_used} cells used")
        _check(self._limit <= self.num_cells, f"limit {self._limit}")
        _check(self._keys.keys() <= self._used_at.keys(), "histories")
        self._residency.check_integrity()
        for holder in self._residency:
            equal = self._num_computed(holder) == self._prefixes.length(holder) > 0
            _check(equal and holder in self._used_at, f"kept prefix {holder}")

    # ---- kept prefixes

    def _residency_has_room(self) -> bool:
        if not self._residency.has_free and (oldest := self._residency.oldest) is not None:
            self._drop(oldest)
        return self._residency.has_free

    def _keep(self, slot: int, keys: list[int]) -> None:
        if not keys:
            return
        holder = self._residency.put()
        self._prefixes.insert(holder, keys)
        if covering := [
            one for one in self._prefixes.others_with_all_of(holder) if one in self._residency
        ]:
            self._prefixes.remove(holder)
            self._residency.remove(holder)
            self._use(max(covering))
            return
        self._cells.share(slot, holder, len(keys))
        self._edits.append(Copy(slot, holder, len(keys)))
        for within in self._prefixes.others_within(holder):
            if within in self._residency:
                self._drop(within)
        self._use(holder)

    def _pieces_to(self, found: Found) -> tuple[int, ...]:
        """Cells of the parked pieces that hold the rest of what was `found`."""
        if found.source is None or found.source not in self._residency:
            return ()
        end = self._cells.length(found.source)
        needed = []
        for length in self._residency.pieces(found.source):
            if end >= found.length:
                break
            needed.append(length)
            end += length
        return tuple(needed)

    @property
    def _num_movable(self) -> float:
        return max(0.0, self._most_moved - self.num_moved)

    def _make_room(self, count: int, *, sparing: int | None) -> None:
        while (num_missing := count - self.num_free) > 0:
            holder = self._next_to_go(sparing=sparing)
            if holder is None:
                raise RuntimeError(f"{count} cells asked for, {self.num_available} available")
            self._put_away(holder, max(num_missing, LEAST_IN_PIECE), sparing=sparing)

    def _next_to_go(self, *, sparing: int | None) -> int | None:
        """The kept prefix to evict from: the least recently used.

        First those with cells that nobody else has; then those that share them with each other.
        """
        present = [one for one in self._residency if one != sparing and self._cells.length(one)]
        return next(
            (one for one in present if self._cells.num_alone(one)),
            next((one for one in present if self._num_not_in_use(one)), None),
        )

    def _num_not_in_use(self, holder: int) -> int:
        return self._cells.num_not_in_use(holder, self._cells.length(holder))

    def _clear_the_way(self, *, sparing: int | None = None) -> None:
        """Park what is not needed by the one that begins, as much of it as takes a moment."""
        start = self.num_moved
        for holder in self._residency if self._is_compact else ():
            if self.num_moved - start >= ENOUGH_AT_ONCE:
                return
            while holder != sparing and (count := self._num_parkable(holder)):
                if not self._park(holder, count, sparing=sparing):
                    break

    def _num_parkable(self, holder: int) -> int:
        """Cells of a kept prefix that nobody else has, and that may be copied now as a piece."""
        if not self._cells.length(holder):
            return 0
        most = min(self._num_movable, MOST_IN_PIECE)
        return min(self._cells.num_alone(holder), floor(most))

    def _put_away(self, holder: int, most: int, *, sparing: int | None) -> None:
        """Some of the last cells of a kept prefix go, for host memory or for good."""
        alone = self._cells.num_alone(holder) or self._num_not_in_use(holder)
        count = min(alone, most, MOST_IN_PIECE)
        if not self._park(holder, count, sparing=sparing):
            self._shorten(holder, self._cells.length(holder) - count)

    def _park(self, holder: int, count: int, *, sparing: int | None) -> bool:
        """Whether the last `count` cells of a kept prefix went to host memory.

        Not if there is no room for them, nor where they would have to go for what comes before.
        """
        spared = {holder} if sparing is None else {holder, sparing}
        if self._num_computed(holder) > self._residency.most_parked:
            return False
        going = self._residency.in_the_way(count, sparing=spared)
        if going is None:
            return False
        for one in going:
            self._forget_parked(one)
        start = self._cells.length(holder) - count
        self._cells.truncate(holder, start)
        self._edits.append(Park(holder, start, count))
        self._residency.park(holder, count)
        self.num_moved += count
        return True

    def _forget_parked(self, holder: int) -> None:
        """What is parked of it goes; what is in the cells stays."""
        if self._residency.parked(holder):
            self._shorten(holder, self._cells.length(holder))

    def _shorten(self, holder: int, length: int) -> None:
        """A kept prefix has only its first `length` tokens, which are in the cells."""
        if not length:
            self._drop(holder)
            return
        self._residency.forget_parked(holder)
        self._cells.truncate(holder, length)
        self._edits.append(Clear(holder, length))
        keys = self._prefixes.keys(holder)[:length]
        self._prefixes.remove(holder)
        self._prefixes.insert(holder, keys)

    def _drop(self, holder: int) -> None:
        self._residency.remove(holder)
        self._forget(holder)

    def _num_computed(self, holder: int) -> int:
        return self._cells.length(holder) + self._residency.parked(holder)

    def _forget(self, holder: int) -> None:
        self._cells.close(holder)
        self._edits.append(Clear(holder))
        if holder in self._prefixes:
            self._prefixes.remove(holder)
            del self._used_at[holder]

    def _announce(self, slot: int, keys: list[int], most_shared: int | None) -> None:
        """Others may share what `slot` has or is going to have."""
        if self.can_share:
            self._prefixes.insert(slot, keys[:most_shared])
            self._use(slot)
            if most_shared is None:
                self._keys[slot] = keys

    def _catch_up(self, slot: int) -> None:
        """Enter the tokens that were computed since the last time."""
        keys = self._keys.get(slot)
        if keys is None:
            return
        known, computed = self._prefixes.length(slot), self._cells.length(slot)
        if known < computed:
            self._prefixes.extend(slot, keys[known:computed])

    def _use(self, holder: int) -> None:
        self._num_uses += 1
        self._used_at[holder] = self._num_uses
        self._residency.touch(holder)


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"memory out of order: {finding}")
