"""One KV cache for all, of a model whose sequences cannot give up their last tokens.

Sliding windows lose what lies behind them, and the state of a recurrent layer goes on and cannot go
back. So another sequence can begin with what one has computed only where that stands right then, or
stood when a *checkpoint* was taken: a holder that got all its cells, by reference, and goes no
further. llama.cpp copies a recurrent state when the sequence goes on from it; cells with two owners
outlive the window.

Checkpoints are taken
- where a prompt parts from another that is known: the next one that begins so finds it;
- where another sequence waits for a part of a prompt that is being read;
- where messages begin, as far as it is said, and every `EVERY` tokens;
- before the last token of a prompt, for the same prompt again;
- at the end of an answer, for the next turn, and where a sequence is preempted.

A part of a prompt that is read at once ends at such a place (`next_border`).

What the last step of a sequence drafted in vain can be taken back (`sweep`). A recurrent state that
was taken back belongs to its sequence alone until that goes on: whoever begins with it before that
gets a copy (`Copy.is_rolled_back`).

When numbers or cells run short, those checkpoints go first whose loss costs least. That ages as in
GreedyDual (P. Cao, S. Irani: Cost-aware WWW proxy caching algorithms, USITS 1997): what is used is
worth so much more than what went last. By how much says the logarithm of the tokens that lie
between it and the checkpoint before it: by their number, long prompts that come once would drive
out conversations (six of them over four slots with twelve checkpoints: 14,109 tokens cached of
21,695, by the logarithm 16,553).

Invariants, checked by `check_integrity`:
- a checkpoint has the cells of all its keys, and is not cut within media;
- a slot's borders lie behind its cells, in their order.
"""

from collections.abc import Iterable, Sequence
from math import log2

from ..prompt import border
from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Clear, Copy, Load
from .one_cache import OneCache
from .prefix_marks import Mark, PrefixMarks
from .prefix_tree import Found, PrefixTree

LEAST_GAIN = 8
"""Tokens that an answer goes beyond a checkpoint, at least, to get one of its own."""

EVERY = 2048
"""Tokens of a long prompt after which there is a checkpoint in any case."""


class CheckpointMemory(OneCache):
    """`num_cells` for `slots` sequences, and as many checkpoints as `holders` leaves numbers.

    Where nobody asks for one, they lie `gap` tokens apart: fewer are computed again in a moment.
    """

    can_share = False
    can_keep = False
    num_parked = 0

    def __init__(self, *, slots: int, holders: int, num_cells: int, gap: int) -> None:
        super().__init__(slots=slots, num_cells=num_cells)
        self._gap = gap
        self._free = list(range(slots, holders))
        self._tree = PrefixTree()
        self._keys: dict[int, list[int]] = {}  # of slots that may be shared whole, and grow
        self._borders: dict[int, list[int]] = {}
        self._began_with: dict[int, int] = {}
        self._rolled_back: set[int] = set()
        """Slots that gave up their last cells since they were computed last."""
        self._worth: dict[int, float] = {}
        """Of each checkpoint; those that went last were worth as much as `_age`."""
        self._age = 0.0

    # ---- counts

    @property
    def marks(self) -> PrefixMarks:
        """The marks on all prefixes that others can share."""
        return self._tree.marks

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """What `num_tokens` take of the available cells when their beginning was `found`."""
        if found.source is None:
            return num_tokens
        num_not_in_use = self._cells.num_not_in_use(found.source, found.length)
        return num_tokens - found.length + num_not_in_use

    def is_present(self, found: Found) -> bool:
        """All that can be found is in the cells."""
        return True

    def fetch(self, found: Found) -> bool:
        """All that can be found is in the cells."""
        return True

    def exportable(self, keys: Sequence[int], start: int) -> tuple[int, int] | None:
        """Nothing: states of these models are whole, and checkpoints go with their numbers."""
        return None

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that can be shared now or soon."""
        if most < 1:
            return Found()
        best, promise = Found(), (0, 0, -1)
        for holder, shared in self._reaches(keys).items():
            length, shared = self._cells.length(holder), border(keys, min(shared, most))
            if best.length < length <= shared and border(keys, length) == length:
                best = Found(length, holder)
            if holder not in self._worth and length < shared:
                promise = max(promise, (shared, length, holder))
        if promise[0] > best.length:
            return Found(best.length, best.source, promise[0], promise[2])
        return best

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
        as it grows. `marks` are the names of its beginnings; its messages begin at `borders`.
        """
        if found.source is not None:
            if found.source in self._worth:
                self._use(found.source)
            self._began_with[slot] = found.source
            self._share(found.source, slot, found.length)
        self._announce(slot, keys, most_shared, marks, borders)

    can_extend = False

    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """Not where states are whole."""
        raise TypeError("a stored prompt cannot become a checkpoint")

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
        """A sequence gets `slot`, beginning with all of `stored`.

        There must be as many available cells as that has tokens.
        """
        if length != len(stored.prompt):
            raise ValueError("a part of a stored prompt cannot be loaded")
        self.make_room(length)
        self._edits.append(Load(slot, stored))
        self.allowance.take(length)
        self._cells.grow(slot, length)
        self._announce(slot, keys, None, marks, borders)

    def expect(self, slot: int, length: int) -> None:
        """Others wait for the first `length` tokens of `slot`, which it is going to compute."""
        borders = self._borders[slot]
        if length > self._cells.length(slot) and length not in borders:
            borders.append(length)
            borders.sort()

    def next_border(self, slot: int) -> int | None:
        """Where the part of its prompt has to end that `slot` computes next."""
        borders = self._borders[slot]
        return borders[0] if borders else None

    def grow(self, slot: int, count: int) -> None:
        """`count` more tokens of `slot` were computed."""
        self._cells.grow(slot, count)
        self._rolled_back.discard(slot)
        borders, length = self._borders[slot], self._cells.length(slot)
        is_border = False
        while borders and borders[0] <= length:
            is_border = borders.pop(0) == length
        if is_border:
            self._take(slot)

    def discard(self, slot: int, start: int, count: int) -> None:
        """Not with these models."""
        raise TypeError("cells of this model cannot move")

    def truncate(self, slot: int, length: int) -> None:
        """Only the first `length` tokens of `slot` stay: all or none, with these models."""
        self._cells.truncate(slot, length)
        self._edits.append(Clear(slot, length))

    def leave(self, slot: int) -> None:
        """The sequence of `slot` is gone; where it stood is a checkpoint."""
        self._take(slot, least_gain=min(LEAST_GAIN, self._gap))
        self.clear(slot)

    def preempt(self, slot: int) -> None:
        """The sequence of `slot` gives up its cells, and goes on from where it stood if it can."""
        self.leave(slot)

    def clear(self, slot: int) -> None:
        """Give up the cells of `slot`."""
        self._cells.close(slot)
        self._edits.append(Clear(slot))
        self._rolled_back.discard(slot)
        if slot in self._tree:
            self._tree.remove(slot)
        for each in (self._keys, self._borders, self._began_with):
            each.pop(slot, None)

    def sweep(self, slot: int) -> None:
        """Clear what the last step drafted for `slot` in vain: so few tokens can be taken back."""
        self._edits.append(Clear(slot, self._cells.length(slot)))
        self._rolled_back.add(slot)

    # ---- room

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Drop checkpoints until `count` cells are free; how many then are.

        Ask for no more than are available.
        """
        while count > self.num_free:
            going = self._next_to_go()
            if going is None:
                raise RuntimeError(f"{count} cells asked for, more than are available")
            self._evict(going)
        return self.num_free

    def empty_cells(self) -> bool:
        """Drop all checkpoints; whether that frees any cells."""
        had_any = self.num_kept > 0
        for holder in tuple(self._worth):
            self._drop(holder)
        return had_any

    def lose(self, holder: int) -> None:
        """The cells of `holder` are not what they should be: their source is not used again."""
        source = self._began_with.get(holder, holder)
        if source in self._worth:
            self._drop(source)
        elif source in self._tree:
            self._tree.remove(source)
            self._keys.pop(source, None)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        super().check_integrity()
        self._tree.check_integrity()
        for holder in self._worth:
            keys = self._tree.keys(holder)
            _check(0 < len(keys) == self._cells.length(holder), f"cells of checkpoint {holder}")
        for slot, borders in self._borders.items():
            ahead = [self._cells.length(slot), *borders]
            _check(ahead == sorted(set(ahead)), f"borders {ahead} of slot {slot}")
        numbers = [*self._free, *self._worth]
        _check(len(set(numbers)) == len(numbers), f"numbers {sorted(numbers)}")

    # ---- checkpoints

    def _reaches(self, keys: Sequence[int]) -> dict[int, int]:
        """How many of `keys` each holder has, or is going to have."""
        for slot in self._keys:
            self._catch_up(slot)
        return self._tree.reaches(keys)

    def _before(self, keys: Sequence[int]) -> int:
        """How long the longest checkpoint is that `keys` could begin with."""
        reaches = self._tree.reaches(keys)
        lengths = {one: self._cells.length(one) for one in self._worth if one in reaches}
        return max((n for one, n in lengths.items() if n <= reaches[one]), default=0)

    def _announce(
        self,
        slot: int,
        keys: list[int],
        most_shared: int | None,
        marks: Sequence[Mark],
        borders: Sequence[int],
    ) -> None:
        """Others may share what `slot` has or is going to have."""
        shared = keys[:most_shared]
        parting = max(self._reaches(shared).values(), default=0) if shared else 0
        start = self._cells.length(slot)
        most = len(shared) - 1
        ends = (min(border, most) for border in reversed(borders))
        places = (*ends, most, parting, *range(EVERY, len(shared), EVERY))
        self._borders[slot] = _apart(self._gap, start, (border(shared, place) for place in places))
        self._tree.insert(slot, shared)
        self._tree.mark(slot, marks)
        if most_shared is None:
            self._keys[slot] = keys

    def _catch_up(self, slot: int) -> None:
        """Enter the tokens that were computed since the last time."""
        keys = self._keys.get(slot)
        if keys is None:
            return
        known, computed = self._tree.length(slot), self._cells.length(slot)
        if known < computed:
            self._tree.extend(slot, keys[known:computed])

    def _take(self, slot: int, *, least_gain: int = 1) -> None:
        """Where `slot` stands is a checkpoint, if that can be and is worth it."""
        length = self._cells.length(slot)
        if not length or slot not in self._tree:
            return
        self._catch_up(slot)
        known = self._tree.keys(slot)
        keys = known[:length]
        if len(keys) < length or border(known, length) < length:
            return
        gain = length - self._before(keys)
        if gain < least_gain or not self._make_number():
            return
        holder = self._free.pop()
        self._tree.insert(holder, keys)
        self._share(slot, holder, length)
        self._worth[holder] = self._age + log2(1 + gain)

    def _share(self, source: int, holder: int, length: int) -> None:
        self._cells.share(source, holder, length)
        self._edits.append(Copy(source, holder, length, source in self._rolled_back))

    def _use(self, holder: int) -> None:
        """It is worth as much as if it were new, and goes after those that are worth the same."""
        keys = self._tree.keys(holder)
        del self._worth[holder]
        self._worth[holder] = self._age + log2(1 + len(keys) - self._before(keys[:-1]))

    def _make_number(self) -> bool:
        """Whether there is a number for one more; the one that is worth least goes for it."""
        if not self._free and self._worth:
            self._evict(min(self._worth, key=self._worth.__getitem__))
        return bool(self._free)

    def _next_to_go(self) -> int | None:
        """The checkpoint to drop for cells: first of those with cells that nobody else has."""
        worth = self._worth.__getitem__
        alone = self._cells.kept_alone
        if alone:
            return min(alone, key=worth)
        others = (
            one
            for one in sorted(self._worth, key=worth)
            if self._cells.num_not_in_use(one, self._cells.length(one))
        )
        return next(others, None)

    def _evict(self, holder: int) -> None:
        """What is new from now on is worth more than it was."""
        self._age = max(self._age, self._worth[holder])
        self._drop(holder)

    def _drop(self, holder: int) -> None:
        self._cells.close(holder)
        self._edits.append(Clear(holder))
        self._tree.remove(holder)
        del self._worth[holder]
        self._free.append(holder)


def _apart(gap: int, start: int, places: Iterable[int]) -> list[int]:
    """Those of `places` that lie `gap` behind `start` and apart; the first ones count most."""
    chosen: list[int] = []
    for place in places:
        if all(abs(place - other) >= gap for other in (start, *chosen)) and place > start:
            chosen.append(place)
    return sorted(chosen)


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"checkpoints out of order: {finding}")
