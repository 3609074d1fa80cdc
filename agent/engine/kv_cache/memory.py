"""The KV cache as the scheduler sees it: cells of running sequences and of kept prefixes.

Everything that changes cells is recorded as an edit, to be carried out before the next batch, in
the order in which it happened here.

A slot's cells are its sequence's computed tokens, in order, from position 0. What an ended sequence
computed is *kept* as a prefix that others can begin with, in the cache or *parked* in host memory,
as long as there is room. What a cell holds is known by its cache key (`prompt`): sequences share
where their keys are equal.

`Memory` knows who has which cells and which keys, and what each kept prefix is worth. Its kinds say
where prefixes can end, what leaves the cells, and how it comes back: `unified_memory` for models
whose sequences can give up their last tokens, `checkpoint_memory` for all others.

Invariants, checked by `check_integrity`:
- a number above the slots is free, or has a kept prefix;
- a kept prefix has all its keys computed;
- a slot's borders lie behind its cells, in their order.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Protocol

from ....shared.reports.statistics import Cells as Counts
from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Clear, Edit
from .allowance import Allowance
from .cells import Cells
from .handed import Handed
from .prefix_marks import Mark, PrefixMarks
from .prefix_tree import Found, PrefixTree


class Policy(Protocol):
    """Says what goes first: what is worth least."""

    def worth(self, num_tokens: int) -> float:
        """What a prefix is worth that is used now: without it `num_tokens` are computed again."""

    def went(self, worth: float) -> None:
        """A prefix of this worth had to go."""


class Memory(ABC):
    """`num_cells` for `slots` sequences, and for as many kept prefixes as `holders` leaves numbers.

    Prefixes that are worth least by the `policy` go first.
    """

    can_cut = True
    """Whether sequences can begin with any part of a prefix."""

    def __init__(
        self, *, slots: int, holders: int, num_cells: int, cells: Cells, policy: Policy
    ) -> None:
        self.num_cells = num_cells
        self.allowance = Allowance()
        """What may be copied before the next step, and what is."""
        self._slots = slots
        self._limit = num_cells
        self._edits: list[Edit] = []
        self._cells = cells
        self._tree = PrefixTree()
        self._keys: dict[int, list[int]] = {}  # of slots that may be shared whole, and grow
        self._borders: dict[int, list[int]] = {}
        self._free = list(range(slots, holders))
        self._policy = policy
        self._worth: dict[int, float] = {}
        """What each kept prefix was worth when it was used last."""
        self._used_at: dict[int, int] = {}
        self._num_uses = 0

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
    def num_available(self) -> int:
        """Cells that running sequences could still get, if all kept prefixes went."""
        return self._limit - self._cells.num_in_use

    @property
    def num_free(self) -> int:
        """Cells that can be had without giving anything up; negative if too many are taken."""
        return self._limit - self._cells.num_used

    @property
    @abstractmethod
    def num_parked(self) -> int:
        """Cells' worth of kept prefixes in host memory."""

    @property
    def counts(self) -> Counts:
        """What the cells hold, and how many cells' worth of prefixes is in host memory."""
        return Counts(
            total=self.num_cells,
            used=self._cells.num_in_use,
            kept=self.num_kept,
            parked=self.num_parked,
        )

    @property
    def marks(self) -> PrefixMarks:
        """The marks on all prefixes that others can share."""
        return self._tree.marks

    @property
    def may_copy(self) -> bool:
        """Whether what comes from elsewhere can be copied to the cells beside those who stream."""
        return True

    def length(self, slot: int) -> int:
        """Cells of `slot`."""
        return self._cells.length(slot)

    def place(self, slot: int) -> int:
        """Where `slot` stands in a batch: runs are in the order of their places."""
        return 0

    # ---- to and from elsewhere

    @abstractmethod
    def num_loadable(self, stored: StoredPrompt, keys: Sequence[int], most: int) -> int:
        """With how many of `keys`, at most `most`, a sequence can begin out of `stored`."""

    @abstractmethod
    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """`stored` is a kept prefix from now on, parked: its number, if there is one.

        What comes before its `start` it shares with `source`, which has that in the cells.
        """

    @abstractmethod
    def saves(self, slot: int, start: int, done: Collection[int]) -> list[Handed] | None:
        """What to hand out of `slot`, from position `start` on, as far as may be copied now.

        If sequences can begin only at checkpoints, those that are `done` are left out. Returns
        `None` if it can never be, as those who stream would wait too long.
        """

    @abstractmethod
    def hand_out(self, keys: Sequence[int], start: int) -> list[Handed] | None:
        """Hand out the cached part of `keys` from `start` on, as far as it may be copied now.

        Returns `None` if no part is cached. The parts are read before anything else changes. If
        sequences can begin only at checkpoints, the longest parked checkpoint is handed out whole.
        """

    def checkpoints(self, keys: Sequence[int]) -> tuple[int, ...]:
        """How long the last checkpoints are that `keys` begin with; they grow."""
        return ()

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that can be shared now or soon."""
        if most < 1:
            return Found()
        self._catch_up_all()
        return self._tree.find(
            keys,
            most=most,
            computed=self._num_computed,
            used_at=self._used_at,
            are_whole=not self.can_cut,
        )

    @abstractmethod
    def num_needed(self, found: Found, num_tokens: int) -> int:
        """What `num_tokens` take of the available cells when their beginning was `found`."""

    @abstractmethod
    def fetch(self, found: Found) -> Found | None:
        """Bring back what was `found`, as far as may be copied now.

        Returns with what a sequence can begin before the next step: that is `found`, maybe under
        another number. `None` if there is more to copy. There must be `num_needed` available cells.
        """

    def enter(
        self,
        slot: int,
        keys: list[int],
        found: Found,
        *,
        stored: StoredPrompt | None = None,
        most_shared: int | None = None,
        marks: Sequence[Mark] = (),
        borders: Sequence[int] = (),
    ) -> None:
        """A sequence gets `slot`, beginning with what was `found` and fetched.

        Others may share its first `most_shared` tokens, or all: then `keys` is read again later,
        as it grows. `marks` are the names of its beginnings, by which others ask for them; its
        messages begin at `borders`.

        If prefixes cannot be kept, it begins with the tokens of `stored` that `found` counts. There
        must be as many available cells as `stored` has tokens.
        """
        self._begin(slot, found, stored)
        if found.source is not None and found.source in self._tree:
            self._use(found.source)
        self._announce(slot, keys, most_shared, marks, borders)

    def expect(self, slot: int, length: int) -> None:
        """Others wait for the first `length` tokens of `slot`, which it is going to compute."""
        borders = self._borders[slot]
        if length > self._cells.length(slot) and length not in borders:
            borders.append(length)
            borders.sort()

    def next_border(self, slot: int) -> int | None:
        """Where the part of its prompt has to end that `slot` computes next, if anywhere."""
        borders = self._borders[slot]
        return borders[0] if borders else None

    def grow(self, slot: int, count: int) -> None:
        """`count` more tokens of `slot` were computed."""
        self._cells.grow(slot, count)
        borders, length = self._borders[slot], self._cells.length(slot)
        is_border = False
        while borders and borders[0] <= length:
            is_border = borders.pop(0) == length
        if is_border and not self.can_cut:
            self._keep(slot, is_over=False)

    @abstractmethod
    def discard(self, slot: int, start: int | None = None, count: int | None = None) -> None:
        """`count` tokens of `slot` go, from `start` on; those after them move up.

        Without a `count` all go from there on, as does what a step may have written to `slot`
        without being accounted for; without a `start` that alone. If others may share more than
        `start` tokens, none may go.
        """

    def leave(self, slot: int, *, keeps: bool = True) -> None:
        """The sequence of `slot` is gone; what it computed may be kept as a prefix for others."""
        if keeps:
            self._keep(slot, is_over=True)
        self._forget(slot)
        self._keys.pop(slot, None)
        self._borders.pop(slot, None)

    # ---- room

    @abstractmethod
    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Evict kept prefixes until `count` cells are free; how many then are.

        That may be fewer, if no more cells may be copied before the next step, but at least
        `num_urgent`: all if it is not given. Ask for no more than are available.
        """

    def empty_cells(self) -> bool:
        """Evict all kept prefixes that are in the way; whether there were any."""
        num_kept = self.num_kept
        self.make_room(self.num_available)
        return self.num_kept < num_kept

    @abstractmethod
    def lose(self, holder: int) -> tuple[int, ...]:
        """What was parked as `holder` is lost; with it what has these other numbers."""

    def lower_limit(self, num_free: int) -> None:
        """Count at most `num_free` cells as free from now on."""
        self._limit = min(self.num_cells, self._limit - self.num_free + num_free)

    def raise_limit(self, num_free: int | None = None) -> None:
        """Count `num_free` cells as free again, as far as there are as many; without it, all."""
        if num_free is None:
            self._limit = self.num_cells
            return
        at_least = min(self.num_cells, self._limit - self.num_free + num_free)
        self._limit = max(self._limit, at_least)

    def take_edits(self) -> tuple[Edit, ...]:
        """What to do to the cells before the next batch is computed."""
        edits = tuple(self._edits)
        self._edits.clear()
        return edits

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        self._cells.check_integrity()
        self._tree.check_integrity()
        check(self._cells.num_used <= self.num_cells, f"{self._cells.num_used} cells used")
        check(self._limit <= self.num_cells, f"limit {self._limit}")
        check(all(slot in self._tree for slot in self._keys), "histories")
        numbers = [*self._free, *self._worth]
        check(len(set(numbers)) == len(numbers), f"numbers {sorted(numbers)}")
        for holder in self._worth:
            is_whole = self._num_computed(holder) == self._tree.length(holder) > 0
            check(is_whole, f"kept prefix {holder}")
        for slot, borders in self._borders.items():
            ahead = [self._cells.length(slot), *borders]
            check(ahead == sorted(set(ahead)), f"borders {ahead} of slot {slot}")

    # ---- what a kind of memory decides

    @abstractmethod
    def _num_computed(self, holder: int) -> int | None:
        """How many tokens of a holder are computed; `None` if they cannot be brought back."""

    @abstractmethod
    def _cost(self, holder: int) -> int:
        """How many tokens of a kept prefix are computed again without it."""

    @abstractmethod
    def _begin(self, slot: int, found: Found, stored: StoredPrompt | None) -> None:
        """`slot` gets the cells of what was `found`."""

    @abstractmethod
    def _keep(self, slot: int, *, is_over: bool) -> None:
        """What `slot` computed is kept, as far as it can be and is worth it."""

    # ---- for all kinds

    def _use(self, holder: int) -> None:
        """It is worth as much as if it were new, and goes after those that are worth the same."""
        self._num_uses += 1
        self._used_at[holder] = self._num_uses
        if self._worth.pop(holder, None) is not None:
            self._worth[holder] = self._policy.worth(self._cost(holder))

    def _announce(
        self,
        slot: int,
        keys: list[int],
        most_shared: int | None,
        marks: Sequence[Mark],
        borders: Sequence[int],
    ) -> None:
        """Others may share what `slot` has or is going to have."""
        self._borders[slot] = []
        self._tree.insert(slot, keys[:most_shared])
        self._tree.mark(slot, marks)
        self._use(slot)
        if most_shared is None:
            self._keys[slot] = keys

    def _catch_up_all(self) -> None:
        for slot in self._keys:
            self._catch_up(slot)

    def _catch_up(self, slot: int) -> None:
        """Enter the tokens that were computed since the last time."""
        keys = self._keys.get(slot)
        if keys is None:
            return
        known, computed = self._tree.length(slot), self._cells.length(slot)
        if known < computed:
            self._tree.extend(slot, keys[known:computed])

    def _next_to_go(
        self, *, sparing: int | None = None, rather: Collection[int] = ()
    ) -> int | None:
        """The kept prefix to leave the cells next: the one that is worth least.

        First those with cells that nobody else has, `rather` these if there are any; then those
        that share them with each other.
        """
        alone = (self._cells.kept_alone & self._worth.keys()) - {sparing}
        if alone:
            return min(alone.intersection(rather) or alone, key=self._worth.__getitem__)
        others = (one for one in self._by_worth() if one != sparing)
        return next(filter(self._num_not_in_use, others), None)

    def _num_not_in_use(self, holder: int) -> int:
        length = self._cells.length(holder)
        return self._cells.num_not_in_use(holder, length) if length else 0

    def _make_number(self) -> bool:
        """Whether there is a number for one more; the one that is worth least goes for it."""
        if not self._free and self._worth:
            self._leave_cells(min(self._numbered(), key=self._worth.__getitem__))
        return bool(self._free)

    def _numbered(self) -> Collection[int]:
        """The kept prefixes that may go for a number."""
        return self._worth

    def _leave_cells(self, holder: int) -> None:
        """A kept prefix goes. What is new from now on is worth more than it was."""
        self._policy.went(self._worth[holder])
        self._drop(holder)

    def _drop(self, holder: int) -> None:
        """A kept prefix goes, and its number is free."""
        self._forget(holder)
        del self._worth[holder]
        self._free.append(holder)

    def _by_worth(self) -> list[int]:
        """The kept prefixes, the one that is worth least first."""
        return sorted(self._worth, key=self._worth.__getitem__)

    def _forget(self, holder: int) -> None:
        """`holder` gives up its cells, and nobody finds them any more."""
        self._cells.close(holder)
        self._edits.append(Clear(holder))
        if holder in self._tree:
            self._tree.remove(holder)
            self._used_at.pop(holder, None)


def check(holds: bool, finding: str) -> None:
    """Raise `RuntimeError` with the `finding` unless it `holds`."""
    if not holds:
        raise RuntimeError(f"memory out of order: {finding}")
