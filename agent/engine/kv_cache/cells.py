"""Accounts for every cell of the KV cache; cells that several holders share count once.

A holder is a number to which cells belong (llama.cpp's `seq_id`). Numbers below `slots` are slots
of running sequences; other numbers are kept prefixes. A cell without a holder is free.

A holder's cells are a chain of segments, from the holder's own last segment back to the segment at
position 0. Holders that share a prefix share its segments.

Invariants, checked by `check_integrity`:

- a holder's last segment is not shared, so that it can grow;
- `num_used` sums the segments with holders, `num_in_use` the segments with a slot;
- `num_alone` sums a holder's segments without other holders; their `only` is the holder's number.
"""

from collections import Counter
from collections.abc import Iterator

from ..integrity import check
from ..step import Copy, Edit


class _Segment:
    """Consecutive cells with the same holders. `parent` has the positions before them.

    `only` is the exclusive or of the holders' numbers; with one holder, it is that holder's
    number.
    """

    __slots__ = ("length", "num_holders", "num_slots", "only", "parent")

    def __init__(
        self, length: int, parent: "_Segment | None", *, num_holders: int, num_slots: int, only: int
    ) -> None:
        self.length = length
        self.parent = parent
        self.num_holders = num_holders
        self.num_slots = num_slots
        self.only = only

    def absorb(self, stop: "_Segment | None") -> None:
        """Merge with earlier segments, up to `stop`, that have the same holders."""
        while (parent := self.parent) is not stop and parent is not None:
            if parent.num_holders != self.num_holders:
                return
            self.length += parent.length
            self.parent = parent.parent


class Cells:
    """Counts cells. The contents of cells are not stored here."""

    def __init__(self, *, slots: int) -> None:
        self.num_used = 0
        self.num_in_use = 0
        self.kept_alone: set[int] = set()
        """Kept prefixes that have cells without other holders."""
        self._slots = slots
        self._num_alone: dict[int, int] = {}
        self._last: dict[int, _Segment] = {}
        self._lengths: dict[int, int] = {}

    @property
    def num_taken(self) -> int:
        """The number of cells that a sequence gets only after an eviction."""
        return self.num_used

    def length(self, holder: int) -> int:
        """Return the number of cells of `holder`, which are its positions from 0 on."""
        return self._lengths.get(holder, 0)

    def grow(self, holder: int, count: int) -> None:
        """Add `count` new cells at the end of `holder`."""
        last = self._last.get(holder) or self._open(holder, None)
        last.length += count
        self._lengths[holder] += count
        self.num_used += count
        self.num_in_use += count if holder < self._slots else 0
        self._add_alone(holder, count)

    def share(self, source: int, holder: int, length: int) -> None:
        """Share the first `length` cells of `source` with `holder`, which must have no cells."""
        if self._lengths.get(holder):
            raise ValueError(f"holder {holder} has cells already")
        last = self._cut(source, length)
        self._last.pop(holder, None)
        self._open(holder, last)
        self._lengths[holder] = length
        is_slot = holder < self._slots
        for segment in _chain(last):
            if segment.num_holders == 1:
                self._add_alone(segment.only, -segment.length)
            segment.num_holders += 1
            segment.only ^= holder
            if is_slot:
                self.num_in_use += 0 if segment.num_slots else segment.length
                segment.num_slots += 1

    def keep(self, slot: int, holder: int, length: int) -> list[Edit]:
        """Share the first `length` cells of `slot` with `holder`, before the slot is cleared.

        Returns the edits.
        """
        self.share(slot, holder, length)
        return [Copy(slot, holder, length)]

    def truncate(self, holder: int, length: int) -> None:
        """Remove the cells of `holder` from position `length` on."""
        kept = self._cut(holder, length)
        is_slot = holder < self._slots
        for segment in _chain(self._last.pop(holder), kept):
            segment.num_holders -= 1
            segment.only ^= holder
            if not segment.num_holders:
                self.num_used -= segment.length
                self._add_alone(holder, -segment.length)
            elif segment.num_holders == 1:
                self._add_alone(segment.only, segment.length)
            if is_slot:
                segment.num_slots -= 1
                self.num_in_use -= 0 if segment.num_slots else segment.length
        self._open(holder, kept)
        self._lengths[holder] = length

    def close(self, holder: int) -> None:
        """Remove all cells of `holder`."""
        if holder in self._last:
            self.truncate(holder, 0)
            del self._last[holder], self._lengths[holder], self._num_alone[holder]

    def discard(self, slot: int, start: int, count: int) -> None:
        """Remove `count` cells of `slot` from `start` on; later cells move up.

        The cells move for all their holders, so `slot` must be their only holder from `start` on.
        """
        num_after = self._lengths[slot] - start - count
        if num_after < 0 or not self.is_alone(slot, start):
            raise ValueError(
                f"slot {slot} cannot discard {count} cells from {start} on: it has too few, or "
                "shares them"
            )
        self.truncate(slot, start)
        self.grow(slot, num_after)

    def is_alone(self, holder: int, start: int) -> bool:
        """Return whether `holder` shares no cells from position `start` on."""
        above = self._cut(holder, start)
        return all(one.num_holders == 1 for one in _chain(self._last[holder], above))

    def num_alone(self, holder: int) -> int:
        """Return the number of cells that `holder` shares with no other holder."""
        return self._num_alone.get(holder, 0)

    def num_not_in_use(self, holder: int, length: int) -> int:
        """Return how many of the first `length` cells of `holder` belong to no slot."""
        return sum(one.length for one in _chain(self._cut(holder, length)) if not one.num_slots)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        chains = {holder: list(_chain(last)) for holder, last in self._last.items()}
        every = {segment for chain in chains.values() for segment in chain}
        holders = Counter(segment for chain in chains.values() for segment in chain)
        slots = Counter(
            s for holder, chain in chains.items() if holder < self._slots for s in chain
        )
        check(all(one.num_holders == holders[one] for one in every), "holders of segments")
        check(all(one.num_slots == slots[one] for one in every), "slots of segments")
        check(self.num_used == sum(one.length for one in every), "cells used")
        check(self.num_in_use == sum(one.length for one in slots), "cells in use")
        check(all(one.num_holders == 1 for one in self._last.values()), "last segments")
        lengths = {holder: sum(one.length for one in chain) for holder, chain in chains.items()}
        check(lengths == self._lengths, f"lengths {lengths}, {self._lengths}")
        alone = {
            holder: sum(one.length for one in chain if one.num_holders == 1)
            for holder, chain in chains.items()
        }
        check(alone == self._num_alone, f"cells alone {alone}, {self._num_alone}")
        kept_alone = {holder for holder, num in alone.items() if num and holder >= self._slots}
        check(kept_alone == self.kept_alone, f"{kept_alone} have cells alone")

    def _add_alone(self, holder: int, count: int) -> None:
        """Change the count of cells that only `holder` has."""
        num = self._num_alone[holder] + count
        self._num_alone[holder] = num
        if holder < self._slots:
            return
        if num:
            self.kept_alone.add(holder)
        else:
            self.kept_alone.discard(holder)

    def _open(self, holder: int, parent: _Segment | None) -> _Segment:
        self._lengths.setdefault(holder, 0)
        self._num_alone.setdefault(holder, 0)
        num_slots = int(holder < self._slots)
        segment = _Segment(0, parent, num_holders=1, num_slots=num_slots, only=holder)
        self._last[holder] = segment
        return segment

    def _cut(self, holder: int, length: int) -> _Segment | None:
        """Return the segment of `holder` that ends at position `length`; split one if necessary."""
        if not 0 <= length <= self._lengths[holder]:
            raise ValueError(f"holder {holder} has {self._lengths[holder]} cells, not {length}")
        if not length:
            return None
        end = self._lengths[holder]
        for segment in _chain(self._last[holder]):
            start = end - segment.length
            if end == length and segment is not self._last[holder]:
                return segment
            if start < length:
                return _split(segment, length - start)
            end = start
        raise RuntimeError(f"the chain of holder {holder} is too short")


class Room:
    """The room for running sequences in `num_cells` cells, which `cells` counts.

    llama.cpp may accept fewer tokens than there are cells. Then `limit` sets the number of free
    cells.
    """

    def __init__(self, cells: Cells, num_cells: int) -> None:
        self.num_cells = num_cells
        self._cells = cells
        self._limit = num_cells

    def length(self, slot: int) -> int:
        """Return the number of cells of `slot`."""
        return self._cells.length(slot)

    @property
    def num_used(self) -> int:
        """The number of cells that belong to a sequence or a kept prefix."""
        return self._cells.num_used

    @property
    def num_kept(self) -> int:
        """The number of cells that belong only to kept prefixes."""
        return self._cells.num_used - self._cells.num_in_use

    @property
    def num_available(self) -> int:
        """Cells that running sequences could still get if all kept prefixes were evicted."""
        return self._limit - self._cells.num_in_use

    @property
    def num_free(self) -> int:
        """Cells that are free without an eviction; negative if too many are taken."""
        return self._limit - self._cells.num_taken

    def limit(self, num_free: int | None = None) -> None:
        """Count only `num_free` cells as free from now on; without `num_free`, all free cells."""
        taken = self._limit - self.num_free
        self._limit = min(self.num_cells, self.num_cells if num_free is None else taken + num_free)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if more cells are used or free than there are."""
        check(self.num_used <= self.num_cells, f"{self.num_used} cells used")
        check(self._limit <= self.num_cells, f"limit {self._limit}")


def _chain(last: _Segment | None, stop: _Segment | None = None) -> Iterator[_Segment]:
    """Yield `last` and the segments before it, back to `stop`, which is not yielded."""
    segment = last
    while segment is not None and segment is not stop:
        segment.absorb(stop)
        yield segment
        segment = segment.parent


def _split(segment: _Segment, length: int) -> _Segment:
    """Make the first `length` cells of `segment` its parent."""
    first = _Segment(
        length,
        segment.parent,
        num_holders=segment.num_holders,
        num_slots=segment.num_slots,
        only=segment.only,
    )
    segment.parent = first
    segment.length -= length
    return first
