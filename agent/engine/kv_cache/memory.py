"""Who holds what in the KV cache: slots of running sequences, and prefixes kept of ended ones.

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

Invariant: a slot's cells are its sequence's computed tokens, in order, from position 0.
"""

from collections.abc import Sequence

from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Clear, Copy, Discard, Edit, Load, Park, Restore
from .cells import Cells
from .prefix_tree import Found, PrefixTree
from .residency import Residency

ENOUGH_AT_ONCE = 1024
"""No further prefix is parked when so many cells were, which takes 16 to 30 ms of a model of 600
million weights."""


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
        self._histories: dict[int, list[int]] = {}  # of slots whose tokens may all be shared
        self._residency = Residency(
            range(slots, holders if can_share else slots), most_parked=most_parked
        )
        self._used_at: dict[int, int] = {}
        self._num_uses = 0
        self._edits: list[Edit] = []

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
        """Tokens of kept prefixes in host memory."""
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
        if (parked := self._residency.length_parked(found.source)) is not None:
            return max(num_tokens, parked)  # all of it comes back for a moment
        return num_tokens - found.length + self._cells.num_not_in_use(found.source, found.length)

    # ---- a running sequence

    def find(self, tokens: Sequence[int], most: int) -> Found:
        """The longest prefix of `tokens`, of at most `most`, that can be shared now or soon."""
        if not self.can_share or most < 1:
            return Found()
        for slot in self._histories:
            self._catch_up(slot)
        computed = {holder: self._num_computed(holder) for holder in self._used_at}
        return self._prefixes.find(tokens, most=most, computed=computed, used_at=self._used_at)

    def enter(
        self, slot: int, history: list[int], found: Found, *, most_shared: int | None = None
    ) -> None:
        """A sequence gets `slot`, beginning with what was `found`.

        Others may share its first `most_shared` tokens, or all: then `history` is read again later,
        as it grows.
        """
        if found.source is not None:
            self._use(found.source)
            self._clear_the_way(sparing=found.source)
            self._begin_with(found.source, slot, found.length)
        else:
            self._clear_the_way()
        self._announce(slot, history, most_shared)

    def load(self, slot: int, history: list[int], stored: StoredPrompt, length: int) -> None:
        """A sequence gets `slot`, beginning with the first `length` tokens of `stored`.

        There must be as many available cells as `stored` has tokens.
        """
        self._clear_the_way()
        self.make_room(len(stored.tokens))
        self._edits.append(Load(slot, stored, length))
        self._cells.grow(slot, length)
        self._announce(slot, history, None)

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
        tokens = self._prefixes.tokens(slot)[:num_computed]
        self._keep(slot, tokens)
        self.clear(slot)

    def clear(self, slot: int) -> None:
        """Give up the cells of `slot`."""
        self._forget(slot)
        self._histories.pop(slot, None)

    def sweep(self, slot: int) -> None:
        """Clear what a step may have written to `slot` without being accounted for."""
        self._edits.append(Clear(slot, self._cells.length(slot)))

    # ---- room

    def make_room(self, count: int) -> None:
        """Kept prefixes go until `count` cells are free. Ask for no more than are available."""
        self._make_room(count, sparing=None)

    def empty_cells(self) -> bool:
        """No kept prefix stays in the cells; whether there were any."""
        had_any = self._residency.oldest_resident is not None
        while (holder := self._residency.oldest_resident) is not None:
            self._put_away(holder)
        return had_any

    def lose(self, holder: int) -> None:
        """What was parked as `holder` cannot be had back."""
        if holder in self._residency:
            self._drop(holder)

    def lower_limit(self, num_free: int) -> None:
        """Believe no longer in more than `num_free` free cells."""
        self._limit = min(self.num_cells, self._cells.num_used + num_free)

    def raise_limit(self, num_free: int) -> None:
        """Believe again in `num_free` free cells, as far as there are as many."""
        self._limit = max(self._limit, min(self.num_cells, self._cells.num_used + num_free))

    def trust(self) -> None:
        """Believe in all cells again."""
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
        _check(self._histories.keys() <= self._used_at.keys(), "histories")
        self._residency.check_integrity()
        for holder in self._residency:
            equal = self._num_computed(holder) == self._prefixes.length(holder)
            _check(equal and holder in self._used_at, f"kept prefix {holder}")

    # ---- kept prefixes

    def _residency_has_room(self) -> bool:
        if not self._residency.has_free and (oldest := self._residency.oldest) is not None:
            self._drop(oldest)
        return self._residency.has_free

    def _keep(self, slot: int, tokens: list[int]) -> None:
        if not tokens:
            return
        holder = self._residency.put()
        self._prefixes.insert(holder, tokens)
        if covering := [
            one for one in self._prefixes.others_with_all_of(holder) if one in self._residency
        ]:
            self._prefixes.remove(holder)
            self._residency.remove(holder)
            self._use(max(covering))
            return
        self._cells.share(slot, holder, len(tokens))
        self._edits.append(Copy(slot, holder, len(tokens)))
        for within in self._prefixes.others_within(holder):
            if within in self._residency:
                self._drop(within)
        self._use(holder)

    def _begin_with(self, source: int, slot: int, length: int) -> None:
        parked = self._residency.length_parked(source)
        if parked is None:
            self._cells.share(source, slot, length)
            self._edits.append(Copy(source, slot, length))
        else:
            self._make_room(parked, sparing=source)
            self._cells.grow(slot, length)
            self._edits.append(Restore(source, slot, length))

    def _make_room(self, count: int, *, sparing: int | None) -> None:
        while self.num_free < count:
            oldest = self._residency.oldest_resident
            if oldest is None:
                raise RuntimeError(f"{count} cells asked for, {self.num_available} available")
            self._put_away(oldest, sparing=sparing)

    def _clear_the_way(self, *, sparing: int | None = None) -> None:
        """Park what is not needed by the one that begins, as much of it as takes a moment."""
        num_left = ENOUGH_AT_ONCE if self._is_compact else 0
        for holder in self._residency.residents():
            if num_left > 0 and holder != sparing and self._is_worth_moving(holder):
                num_left -= self._cells.length(holder)
                self._park(holder, sparing=sparing)

    def _is_worth_moving(self, holder: int) -> bool:
        """All of it has to be moved; only the cells that nobody else has become free by that."""
        return 2 * self._cells.num_alone(holder) >= self._cells.length(holder)

    def _put_away(self, holder: int, *, sparing: int | None = None) -> None:
        """A resident prefix leaves the cells, for host memory or for good."""
        if not self._park(holder, sparing=sparing):
            self._drop(holder)

    def _park(self, holder: int, *, sparing: int | None = None) -> bool:
        """Whether there was room for it."""
        length = self._cells.length(holder)
        going = self._residency.in_the_way(length, sparing=sparing)
        if going is None:
            return False
        for one in going:
            self._drop(one)
        self._cells.close(holder)
        self._edits.append(Park(holder))
        self._residency.park(holder, length)
        return True

    def _drop(self, holder: int) -> None:
        self._residency.remove(holder)
        self._forget(holder)

    def _num_computed(self, holder: int) -> int:
        parked = self._residency.length_parked(holder)
        return self._cells.length(holder) if parked is None else parked

    def _forget(self, holder: int) -> None:
        self._cells.close(holder)
        self._edits.append(Clear(holder))
        if holder in self._prefixes:
            self._prefixes.remove(holder)
            del self._used_at[holder]

    def _announce(self, slot: int, history: list[int], most_shared: int | None) -> None:
        """Others may share what `slot` has or is going to have."""
        if self.can_share:
            self._prefixes.insert(slot, history[:most_shared])
            self._use(slot)
            if most_shared is None:
                self._histories[slot] = history

    def _catch_up(self, slot: int) -> None:
        """Enter the tokens that were computed since the last time."""
        history = self._histories.get(slot)
        if history is None:
            return
        known, computed = self._prefixes.length(slot), self._cells.length(slot)
        if known < computed:
            self._prefixes.extend(slot, history[known:computed])

    def _use(self, holder: int) -> None:
        self._num_uses += 1
        self._used_at[holder] = self._num_uses
        self._residency.touch(holder)


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"memory out of order: {finding}")
