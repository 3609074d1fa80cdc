"""The KV cache as the scheduler sees it: cells of running sequences and of kept prefixes.

Every change of cells is recorded as an edit. Edits are carried out before the next batch, in the
order of the changes.

A slot's cells are its sequence's computed tokens, in order, from position 0. What an ended sequence
computed is *kept* as a prefix with which others can begin, in the cache or *parked* in host memory,
as long as there is room. A cell's content is identified by its cache key (`prompt`): sequences
share cells with equal keys.

`Memory` knows the cells and keys of each holder, and the worth of each kept prefix. Its subclasses
decide where prefixes can end, what leaves the cells, and how it comes back: `unified_memory` for
models whose sequences can give up their last tokens, `checkpoint_memory` for all others.

Invariants, checked by `check_integrity`:

- a number above the slots is free, or has a kept prefix;
- a kept prefix has all its keys computed;
- a slot's borders are after its cells, in ascending order.
"""

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from ....shared.reports.statistics import Cells as Counts
from ..integrity import check
from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Clear, Edit, Free
from .allowance import Allowance
from .cells import Cells, Room
from .handed import Handed, HandOut
from .parked_blocks import ParkedBlocks
from .prefix_tree import Found, Mark, PrefixTree


class Policy(Protocol):
    """Decides which prefix is evicted first: the one with the least worth."""

    def worth(self, num_tokens: int) -> float:
        """Return the worth of a prefix used now. `num_tokens` must be computed again without
        it.
        """

    def went(self, worth: float) -> None:
        """Record that a prefix of this worth was evicted."""


class Memory(ABC):
    """Manages `num_cells` for `slots` sequences, and for kept prefixes below `holders`.

    The prefix with the least worth by the `policy` is evicted first. Without `can_share`, sequences
    share nothing and no prefixes are kept: the model's sequences cannot drop their last tokens,
    or may have lost their first ones.
    """

    can_cut = True
    """True if sequences can begin with any part of a prefix."""

    def __init__(
        self,
        *,
        slots: int,
        holders: int,
        num_cells: int,
        cells: Cells,
        policy: Policy,
        parked: ParkedBlocks,
        can_share: bool = True,
    ) -> None:
        self.room = Room(cells, num_cells)
        self.allowance = Allowance()
        """The limit of copies before the next step, and the copies so far."""
        self._slots = slots
        self._edits: list[Edit] = []
        self._cells = cells
        self._tree = PrefixTree()
        self.marks = self._tree.marks
        """The marks on all prefixes that others can share."""
        self._keys: dict[int, list[int]] = {}  # of slots that may be shared whole, and grow
        self._borders: dict[int, list[int]] = {}
        self._can_share = can_share
        self._unshared: dict[int, Sequence[Mark]] = {}
        """Marks of slots that are not shared, until their prompts are read."""
        self._free = list(range(slots, holders)) if can_share else []
        self._policy = policy
        self._worth: dict[int, float] = {}
        """The worth of each kept prefix when it was used last."""
        self._used_at: dict[int, int] = {}
        self._num_uses = 0
        self._parked = parked
        self._copies: dict[int, int] = {}
        """Names of the parked copies, whole or partial, of kept prefixes with numbers."""

    @property
    def counts(self) -> Counts:
        """The use of the cells, and the cells' worth of prefixes in host memory."""
        return Counts(
            total=self.room.num_cells,
            used=self._cells.num_in_use,
            kept=self.room.num_kept,
            parked=self._parked.num_positions,
        )

    # ---- to and from elsewhere

    @abstractmethod
    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """Keep `stored` as a parked prefix. Returns its number, or `None` if no number is free.

        The prefix shares the cells before its `start` with `source`, which has them in the cache.
        """

    def checkpoints(self, keys: Sequence[int]) -> tuple[int, ...]:
        """Return the lengths at which prefixes of `keys` can end; `()` if they can end anywhere."""
        return ()

    @abstractmethod
    def hand_out(self, keys: Sequence[int], read: HandOut) -> list[Handed] | None:
        """Return the next parts to read of the cached prefix of `keys`, after the parts in `read`.

        The list is empty if nothing may be read yet. Returns `None` if nothing more is cached, or
        if it cannot be read. The caller must read the parts before the memory changes.
        """

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int, stored: StoredPrompt | None = None) -> Found:
        """Return the longest prefix of `keys`, up to `most`, that can be shared now or soon.

        The result also says how much of the prefix a sequence could begin with after `stored` is
        adopted.
        """
        found = self._find(keys, most)
        if stored is None or not self._can_share or found.length < stored.start:
            return found
        if not stored.is_usable or len(stored.prompt) > self.room.num_available:
            return found
        return replace(found, num_stored=self._num_loadable(stored, keys, most))

    def _find(self, keys: Sequence[int], most: int) -> Found:
        """Return the longest prefix in the cells or in host memory."""
        if most < 1 or not self._can_share:
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
        """Return how many available cells a sequence of `num_tokens` needs if it begins with
        `found`.
        """

    def fetch(self, found: Found) -> Found | None:
        """Restore the prefix `found`, as far as may be copied now.

        Returns the prefix with which a sequence can begin before the next step: `found`, maybe
        under another number. Returns `None` if more must be copied first. There must be
        `num_needed` available cells. A prefix that a slot is still computing is ready once the
        slot has computed it.
        """
        slot, length = found.source, found.length
        if slot is None or slot not in self._borders or length <= self._cells.length(slot):
            return self._restore(found)
        borders = self._borders[slot]
        if length not in borders:
            insort(borders, length)
        return None

    def enter(
        self,
        slot: int,
        keys: list[int],
        found: Found,
        *,
        most_shared: int | None = None,
        marks: Sequence[Mark] = (),
        borders: Sequence[int] = (),
    ) -> int:
        """Begin a sequence in `slot` with the prefix that was `found` and fetched.

        Returns the sequence's place in a batch: the runs of a step are in the order of their
        places.

        Other sequences may share the first `most_shared` tokens. By default they may share all,
        and `keys` is read again later as it grows. `marks` are the keys by which balancers ask for
        prefixes of the sequence. The sequence's messages begin at `borders`.
        """
        self._begin(slot, found)
        if found.source is not None and found.source in self._tree:
            self._use(found.source)
        self._announce(slot, keys, most_shared, marks, borders)
        return self._place(slot)

    def next_border(self, slot: int) -> int | None:
        """Return the position at which the slot's next part of the prompt has to end, or `None`."""
        borders = self._borders[slot]
        return borders[0] if borders else None

    def grow(self, slot: int, count: int) -> None:
        """Record that `count` more tokens of `slot` were computed."""
        self._cells.grow(slot, count)
        borders, length = self._borders[slot], self._cells.length(slot)
        is_border = False
        while borders and borders[0] <= length:
            is_border = borders.pop(0) == length
        if is_border and not self.can_cut:
            self._keep(slot, is_over=False)
        if (marks := self._unshared.get(slot)) and length >= marks[-1][0]:
            self._are_absent(self._unshared.pop(slot))

    @abstractmethod
    def discard(self, slot: int, start: int | None = None, count: int | None = None) -> None:
        """Remove `count` tokens of `slot` from `start` on; later tokens move up.

        Without `count`, remove all tokens from `start` on, and cells that a step may have written
        to `slot` without accounting for them. Without `start`, remove only those unaccounted
        cells. Tokens that other sequences may share must not be removed.
        """

    def leave(self, slot: int, *, keeps: bool = True) -> None:
        """End the sequence of `slot`; its tokens may be kept as a prefix for others."""
        if keeps and self._can_share:
            self._keep(slot, is_over=True)
        self._forget(slot)
        self._keys.pop(slot, None)
        self._borders.pop(slot, None)
        self._unshared.pop(slot, None)

    # ---- room

    @abstractmethod
    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Evict kept prefixes until `count` cells are free. Returns the number of free cells.

        The result may be lower than `count` if no more cells may be copied before the next step.
        It is at least `num_urgent`, which is `count` by default. `count` must not exceed the
        available cells.
        """

    @abstractmethod
    def lose(self, holder: int) -> tuple[int, ...]:
        """Forget the parked prefix `holder`, which is lost. Returns the other numbers lost with
        it.
        """

    def take_edits(self) -> tuple[Edit, ...]:
        """Return the edits to carry out before the next batch, and forget them."""
        edits = tuple(self._edits)
        self._edits.clear()
        return edits

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        self._cells.check_integrity()
        self.room.check_integrity()
        self._tree.check_integrity()
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
    def _num_loadable(self, stored: StoredPrompt, keys: Sequence[int], most: int) -> int:
        """Return how many of `keys`, at most `most`, a sequence can begin with if it loads
        `stored`.
        """

    @abstractmethod
    def _num_computed(self, holder: int) -> int | None:
        """Return how many tokens of a holder are computed; `None` if they cannot be restored."""

    @abstractmethod
    def _cost(self, holder: int) -> int:
        """Return how many tokens would have to be computed again without a kept prefix."""

    @abstractmethod
    def _restore(self, found: Found) -> Found | None:
        """Restore a prefix that is computed; see `fetch`."""

    @abstractmethod
    def _begin(self, slot: int, found: Found) -> None:
        """Give `slot` the cells of the prefix `found`."""

    @abstractmethod
    def _keep(self, slot: int, *, is_over: bool) -> None:
        """Keep the computed tokens of `slot` as a prefix, if that is possible and worth it."""

    def _place(self, slot: int) -> int:
        """Return the place of `slot` in a batch."""
        return 0

    # ---- for all kinds

    def _use(self, holder: int) -> None:
        """Renew the worth of a holder; of equal holders, the last used is evicted last."""
        self._num_uses += 1
        self._used_at[holder] = self._num_uses
        if self._worth.pop(holder, None) is not None:
            worth = self._worth[holder] = self._policy.worth(self._cost(holder))
            if (name := self._copies.get(holder)) is not None:
                self._parked.use(name, worth)

    def _announce(
        self,
        slot: int,
        keys: list[int],
        most_shared: int | None,
        marks: Sequence[Mark],
        borders: Sequence[int],
    ) -> None:
        """Enter the computed and planned tokens of `slot` that other sequences may share."""
        self._borders[slot] = []
        if not self._can_share:
            self._are_absent(marks)
            self._unshared[slot] = marks
            return
        self._tree.insert(slot, keys[:most_shared])
        self._tree.mark(slot, marks)
        self._use(slot)
        if most_shared is None:
            self._keys[slot] = keys

    def _are_absent(self, marks: Sequence[Mark]) -> None:
        """Report that the prefixes of a prompt are not cached.

        A balancer believes that they are cached when it sends the request, and again when the agent
        has read the prompt.
        """
        for _, key in marks:
            self.marks.absent(key)

    def _catch_up_all(self) -> None:
        for slot in self._keys:
            self._catch_up(slot)

    def _catch_up(self, slot: int) -> None:
        """Enter the tokens that were computed since the last call."""
        keys = self._keys.get(slot)
        if keys is None:
            return
        known, computed = self._tree.length(slot), self._cells.length(slot)
        if known < computed:
            self._tree.extend(slot, keys[known:computed])

    def _next_to_go(
        self, *, sparing: int | None = None, rather: Collection[int] = ()
    ) -> int | None:
        """Return the kept prefix to evict from the cells next: the prefix with the least worth.

        Prefixes with cells of their own come first, starting with prefixes in `rather`. Prefixes
        that share all their cells come last.
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
        """Free a number for a kept prefix, by an eviction if necessary.

        Returns whether a number is free.
        """
        if not self._free and self._worth:
            self._leave_cells(min(self._numbered(), key=self._worth.__getitem__))
        return bool(self._free)

    def _numbered(self) -> Collection[int]:
        """Return the kept prefixes whose eviction frees a number."""
        return self._worth

    def _leave_cells(self, holder: int) -> None:
        """Evict a kept prefix from the cells. Prefixes that are used after that are worth more."""
        self._policy.went(self._worth[holder])
        self._drop(holder)

    def _drop(self, holder: int) -> None:
        """Remove a kept prefix, and free its number."""
        self._forget(holder)
        del self._worth[holder]
        self._free.append(holder)

    def _free_blocks(self, blocks: Sequence[int]) -> None:
        if blocks:
            self._edits.append(Free(tuple(blocks)))

    def _by_worth(self) -> list[int]:
        """Return the kept prefixes in ascending order of worth."""
        return sorted(self._worth, key=self._worth.__getitem__)

    def _forget(self, holder: int) -> None:
        """Remove the cells of `holder`, and remove it from the tree."""
        self._cells.close(holder)
        self._edits.append(Clear(holder))
        if holder in self._tree:
            self._tree.remove(holder)
            self._used_at.pop(holder, None)
