"""A KV cache of its own, a stream, for each running sequence and for as many kept prefixes as fit.

What a token attends to lies together, so nobody's steps pass over others' cells. In return a prefix
is copied where it cannot be handed over. A kept prefix keeps the stream it was computed in, until a
newcomer needs that: one that goes on from all of it gets the stream as it is. Otherwise the least
recently used makes room. It is parked where it is worth that, and then the newcomers copy from
host memory; it goes where others have nearly all of it.

A stream's state can only be copied as a whole. The first copy before a step may take as long as a
step; whoever needs a further one begins a step later. A prefix whose copy would surely take longer
is computed again.

Invariant: a slot in use has a stream; a kept prefix either has a stream, or is parked, as a whole.
"""

from collections.abc import Iterable, Sequence

from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Adopt, Clear, Discard, Duplicate, Edit, HandOver, Park, Place, Swap
from .allowance import LEAST_IN_PIECE, Allowance
from .prefix_tree import Found, PrefixTree
from .residency import Residency
from .streams import Streams

WORTH_PARKING = 1 / 8
"""The part of a prefix that nobody else has must be as large: to compute a token takes some ten
times as long as to copy it to host memory."""


class StreamMemory:
    """`num_streams` with `num_cells` in all; slots and kept prefixes are numbers below `holders`.

    Of kept prefixes up to `most_parked` cells go to host memory.
    """

    can_share = True

    def __init__(
        self, *, slots: int, holders: int, num_streams: int, num_cells: int, most_parked: int
    ) -> None:
        self.allowance = Allowance()
        self.num_cells = num_cells
        self._limit = num_cells
        self._slots = slots
        self._edits: list[Edit] = []
        self._lengths: dict[int, int] = {}
        """Of those who have a stream."""
        self._keys: dict[int, list[int]] = {}  # of slots that may be shared whole, and grow
        self._streams = Streams(num_streams)
        self._residency = Residency(range(slots, holders), most_parked=most_parked)
        self._tree = PrefixTree()
        self._used_at: dict[int, int] = {}
        self._num_uses = 0

    # ---- counts

    @property
    def num_used(self) -> int:
        """Cells that are not free."""
        return sum(self._lengths.values())

    @property
    def num_kept(self) -> int:
        """Cells of kept prefixes."""
        return self.num_used - self._num_in_use

    @property
    def num_parked(self) -> int:
        """Cells' worth of kept prefixes in host memory."""
        return self._residency.num_parked

    @property
    def num_available(self) -> int:
        """Cells that slots could still get."""
        return self._limit - self._num_in_use

    @property
    def num_free(self) -> int:
        """The same: kept prefixes take no cells that slots could get."""
        return self.num_available

    @property
    def has_own_cells(self) -> bool:
        """Whether each slot has cells for a whole sequence: as long as no step found less room."""
        return self._limit == self.num_cells

    @property
    def _num_in_use(self) -> int:
        return sum(count for holder, count in self._lengths.items() if holder < self._slots)

    def length(self, slot: int) -> int:
        """Cells of `slot`."""
        return self._lengths.get(slot, 0)

    def place(self, slot: int) -> int:
        """The number of its stream."""
        return self._streams[slot]

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """All of them: what is shared is copied."""
        return num_tokens

    @property
    def can_keep(self) -> bool:
        """Whether prefixes can be kept at all."""
        return self._residency.has_free or any(True for _ in self._residency)

    def is_present(self, found: Found) -> bool:
        """Whether what has to be copied for it may still be copied before the next step."""
        return self.allowance.has_room(self._num_copied(found))

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that can be shared now or soon."""
        if most < 1:
            return Found()
        for slot in self._keys:
            self._catch_up(slot)
        computed = {holder: self._num_computed(holder) for holder in self._used_at}
        found = self._tree.find(keys, most=most, computed=computed, used_at=self._used_at)
        if found.source is None:
            return found
        source = self._cheapest(found.source, list(keys[: found.length]))
        found = Found(found.length, source, found.promised, found.promised_by)
        return found if self._num_copied(found) <= self.allowance.most_whole else Found()

    def enter(
        self, slot: int, keys: list[int], found: Found, *, most_shared: int | None = None
    ) -> None:
        """A sequence gets `slot`, beginning with what was `found`."""
        source = found.source
        if source is not None:
            self._use(source)
        if source is not None and self._goes_with_its_stream(source, found.length):
            self._hand_over(source, slot, found.length)
        else:
            self._open(slot, sparing=source)
            if source is not None:
                self._duplicate(source, slot, found.length)
        self._announce(slot, keys, most_shared)

    def fetch(self, found: Found) -> bool:
        """Nothing comes back before a sequence begins with it: see `is_present`."""
        return self.is_present(found)

    def adopt(self, stored: StoredPrompt) -> int | None:
        """`stored` is a kept prefix from now on, parked: its number, if there is one."""
        if not self._make_number():
            return None
        holder = self._residency.put()
        self._tree.insert(holder, stored.prompt.keys)
        self._use(holder)
        length = len(stored.prompt)
        in_the_way = self._residency.in_the_way(length, sparing=())
        parked = [one for one in self._residency if self._residency.parked(one)]
        for one in parked if in_the_way is None else in_the_way:
            self._drop(one)
        self._residency.adopt(holder, [length])
        self._edits.append(Adopt(holder, stored))
        return holder

    def load(self, slot: int, keys: list[int], stored: StoredPrompt, length: int) -> None:
        """Not with streams: there is always a number for a kept prefix, which is `adopt`ed."""
        raise RuntimeError("with streams a stored prompt is adopted as a kept prefix")

    def grow(self, slot: int, count: int) -> None:
        """`count` more tokens of `slot` were computed."""
        self._lengths[slot] += count

    def discard(self, slot: int, start: int, count: int) -> None:
        """`count` tokens of `slot` go, from `start` on; those after them move up."""
        self._lengths[slot] -= count
        self._edits.append(Discard(slot, start, count))

    def truncate(self, slot: int, length: int) -> None:
        """Only the first `length` tokens of `slot` stay."""
        self._lengths[slot] = length
        self._edits.append(Clear(slot, length))

    def leave(self, slot: int) -> None:
        """The sequence of `slot` is gone; what it computed is kept, in its stream."""
        if self._make_number():
            self._catch_up(slot)
            num_computed = min(self._lengths[slot], self._tree.length(slot))
            if num_computed:
                self._keep(slot, self._tree.keys(slot)[:num_computed])
        self.clear(slot)

    def clear(self, slot: int) -> None:
        """Give up the cells of `slot`."""
        self._forget(slot)
        self._keys.pop(slot, None)

    def sweep(self, slot: int) -> None:
        """Clear what a step may have written to `slot` without being accounted for."""
        self._edits.append(Clear(slot, self._lengths[slot]))

    def arrange(self, slots: Sequence[int]) -> None:
        """Bring the streams of `slots` side by side, if that may be copied now.

        Cells that are about to move up are copied only when they have.
        """
        swaps = self._streams.swaps(slots, self._lengths.__getitem__)
        count = sum(num_cells for _, _, num_cells in swaps)
        is_moving = any(isinstance(edit, Discard) for edit in self._edits)
        if is_moving or not self.allowance.has_room(count):
            return
        for first, second, num_cells in swaps:
            self._streams.swap(first, second)
            self._edits.append(Swap(first, second, num_cells))
            self.allowance.take(num_cells)

    # ---- room

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Nobody has to go: each slot has its own. How many cells are free."""
        return self.num_free

    def empty_cells(self) -> bool:
        """No kept prefix is in the way."""
        return False

    def lose(self, holder: int) -> None:
        """What was parked as `holder` is lost."""
        if holder in self._residency:
            self._drop(holder)

    def lower_limit(self, num_free: int) -> None:
        """Count at most `num_free` cells as free from now on."""
        self._limit = min(self.num_cells, self._num_in_use + num_free)

    def raise_limit(self, num_free: int) -> None:
        """Count `num_free` cells as free again, as far as there are as many."""
        self._limit = max(self._limit, min(self.num_cells, self._num_in_use + num_free))

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
        self._tree.check_integrity()
        self._residency.check_integrity()
        self._streams.check_integrity()
        _check(all(holder in self._streams for holder in self._lengths), "streams")
        _check(all(slot in self._used_at for slot in self._keys), "histories")
        for holder in self._residency:
            has_stream, parked = holder in self._streams, self._residency.parked(holder)
            _check(has_stream != bool(parked), f"kept prefix {holder} is not in one place")
            _check(self._num_computed(holder) == self._tree.length(holder), f"keys of {holder}")

    # ---- kept prefixes

    @property
    def _idle(self) -> list[int]:
        """Kept prefixes that have a stream, the least recently used first."""
        return [holder for holder in self._residency if holder in self._streams]

    def _num_computed(self, holder: int) -> int:
        return self._lengths.get(holder, 0) + self._residency.parked(holder)

    def _use(self, holder: int) -> None:
        self._num_uses += 1
        self._used_at[holder] = self._num_uses
        self._residency.touch(holder)

    def _cheapest(self, source: int, keys: list[int]) -> int:
        """Who of those that have `keys` gives them away most cheaply; at worst `source`."""
        whole = (one for one in self._idle if self._lengths[one] == len(keys))
        leaving = [] if self._streams.has_free else [self._next_to_go(sparing=None)]
        for one in (*whole, *leaving):
            if self._goes_with_its_stream(one, len(keys)) and self._begins_with(one, keys):
                return one
        return source

    def _begins_with(self, holder: int, keys: list[int]) -> bool:
        return self._tree.keys(holder)[: len(keys)] == keys

    def _goes_with_its_stream(self, source: int, length: int) -> bool:
        """Whether who begins with `length` cells of `source` gets its stream, and nothing is lost.

        Or no more than would be lost anyway: where a kept prefix has to go that is not parked.
        """
        if source not in self._residency or source not in self._streams:
            return False
        if length == self._lengths[source]:
            return True
        is_leaving = not self._streams.has_free and self._next_to_go(sparing=None) == source
        return is_leaving and not self._can_park(source)

    def _next_to_go(self, *, sparing: int | None) -> int:
        """The kept prefix that makes room: the least recently used; `sparing` only as the last."""
        idle = self._idle
        return next((holder for holder in idle if holder != sparing), idle[0])

    def _can_park(self, holder: int, *, sparing: int | None = None) -> bool:
        """Whether it is worth that, and has a place in host memory, beside `sparing`."""
        length = self._lengths[holder]
        least = max(LEAST_IN_PIECE, WORTH_PARKING * length)
        if self._tree.num_alone(holder) < least or length > self.allowance.most_whole:
            return False
        return self._in_the_way(holder, sparing=sparing) is not None

    def _in_the_way(self, holder: int, *, sparing: int | None) -> list[int] | None:
        spared = {holder} if sparing is None else {holder, sparing}
        return self._residency.in_the_way(self._lengths[holder], sparing=spared)

    def _num_copied(self, found: Found) -> int:
        """Cells that are copied when a sequence begins with what was `found`."""
        source = found.source
        if source is not None and self._goes_with_its_stream(source, found.length):
            return 0
        count = 0 if source is None else self._num_computed(source)
        if not self._streams.has_free:
            leaving = self._next_to_go(sparing=source)
            count += self._lengths[leaving] if self._can_park(leaving, sparing=source) else 0
        return count

    def _hand_over(self, source: int, slot: int, length: int) -> None:
        """`slot` goes on in the stream of a kept prefix, from its first `length` cells on."""
        self._edits.append(HandOver(source, slot))
        if length < self._lengths.pop(source):
            self._edits.append(Clear(slot, length))
        self._lengths[slot] = length
        self._streams.hand_over(source, slot)
        self._residency.remove(source)
        self._unlist(source)

    def _open(self, slot: int, *, sparing: int | None) -> None:
        """`slot` gets an empty stream, for which a kept prefix may have to go."""
        if not self._streams.has_free:
            self._evict(self._next_to_go(sparing=sparing), sparing=sparing)
        running = [holder for holder in self._lengths if holder < self._slots]
        self._edits.append(Place(slot, self._streams.put(slot, beside=running)))
        self._lengths[slot] = 0

    def _duplicate(self, source: int, slot: int, length: int) -> None:
        count = self._num_computed(source)
        self._edits.append(Duplicate(source, slot, length, count))
        self._lengths[slot] = length
        self.allowance.take(count)

    def _evict(self, holder: int, *, sparing: int | None) -> None:
        """A kept prefix leaves its stream, for host memory or for good."""
        if not self._can_park(holder, sparing=sparing):
            self._drop(holder)
            return
        for one in self._in_the_way(holder, sparing=sparing) or ():
            self._drop(one)
        length = self._lengths.pop(holder)
        self._edits.append(Park(holder, 0, length))
        self._residency.park(holder, length)
        self._streams.remove(holder)
        self.allowance.take(length)

    def _keep(self, slot: int, keys: list[int]) -> None:
        """`keys`, which `slot` has computed, become a kept prefix. There must be a free number."""
        holder = self._residency.put()
        self._tree.insert(holder, keys)
        if covering := self._kept(self._tree.others_with_all_of(holder)):
            self._tree.remove(holder)
            self._residency.remove(holder)
            self._use(max(covering))
            return
        self._edits.append(HandOver(slot, holder))
        if len(keys) < self._lengths.pop(slot):
            self._edits.append(Clear(holder, len(keys)))
        self._lengths[holder] = len(keys)
        self._streams.hand_over(slot, holder)
        for within in self._kept(self._tree.others_within(holder)):
            self._drop(within)
        self._use(holder)

    def _kept(self, holders: Iterable[int]) -> list[int]:
        return [holder for holder in holders if holder in self._residency]

    def _make_number(self) -> bool:
        """Whether there is a number for one more; the oldest one goes for it."""
        if not self._residency.has_free and (oldest := self._residency.oldest) is not None:
            self._drop(oldest)
        return self._residency.has_free

    def _drop(self, holder: int) -> None:
        """A kept prefix goes, and its number is free."""
        self._residency.remove(holder)
        self._edits.append(Clear(holder))
        self._forget(holder, is_cleared=True)

    def _forget(self, holder: int, *, is_cleared: bool = False) -> None:
        """`holder` gives up its stream, if it has one, and nobody finds it any more."""
        if holder in self._streams:
            if not is_cleared:
                self._edits.append(Clear(holder))
            self._streams.remove(holder)
            del self._lengths[holder]
        if holder in self._tree:
            self._unlist(holder)

    def _unlist(self, holder: int) -> None:
        self._tree.remove(holder)
        del self._used_at[holder]

    def _announce(self, slot: int, keys: list[int], most_shared: int | None) -> None:
        """Others may share what `slot` has or is going to have."""
        self._tree.insert(slot, keys[:most_shared])
        self._use(slot)
        if most_shared is None:
            self._keys[slot] = keys

    def _catch_up(self, slot: int) -> None:
        """Enter the tokens that were computed since the last time."""
        keys = self._keys.get(slot)
        if keys is None:
            return
        known, computed = self._tree.length(slot), self._lengths[slot]
        if known < computed:
            self._tree.extend(slot, keys[known:computed])


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"memory out of order: {finding}")
