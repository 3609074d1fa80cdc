"""Which kept prefix gives up its stream to a newcomer, where it goes, and what that copies.

It is parked where that is worth it, and goes for good where others have nearly all of it. A
newcomer that begins with all of a prefix gets the stream as it is, so nothing is copied.
"""

from ..step import Edit, Park
from .allowance import LEAST_IN_PIECE, Allowance
from .prefix_tree import Found
from .stream_holders import StreamHolders

WORTH_PARKING = 1 / 8
"""The part of a prefix that nobody else has must be as large: to compute a token takes some ten
times as long as to copy it to host memory."""


class StreamEviction:
    """Evicts the least recently used first."""

    def __init__(self, holders: StreamHolders, allowance: Allowance, edits: list[Edit]) -> None:
        self._holders = holders
        self._allowance = allowance
        self._edits = edits

    def make_room(self, *, sparing: int | None) -> None:
        """See to it that a stream is free."""
        if not self._holders.streams.has_free:
            self._evict(self._next_to_go(sparing=sparing), sparing=sparing)

    def cheapest(self, source: int, keys: list[int]) -> int:
        """Who of those that have `keys` gives them away most cheaply; at worst `source`."""
        holders = self._holders
        whole = (one for one in holders.idle if holders.lengths[one] == len(keys))
        leaving = [] if holders.streams.has_free else [self._next_to_go(sparing=None)]
        for one in (*whole, *leaving):
            if self.goes_with_its_stream(one, len(keys)) and holders.begins_with(one, keys):
                return one
        return source

    def goes_with_its_stream(self, source: int, length: int) -> bool:
        """Whether who begins with `length` cells of `source` gets its stream, and nothing is lost.

        Or no more than would be lost anyway: where a kept prefix has to go that is not parked.
        """
        holders = self._holders
        if source not in holders.residency or source not in holders.streams:
            return False
        if length == holders.lengths[source]:
            return True
        is_leaving = not holders.streams.has_free and self._next_to_go(sparing=None) == source
        return is_leaving and not self._can_park(source)

    def num_copied(self, found: Found) -> int:
        """Cells that are copied when a sequence begins with what was `found`."""
        holders, source = self._holders, found.source
        if source is not None and self.goes_with_its_stream(source, found.length):
            return 0
        count = 0 if source is None else holders.num_computed(source)
        if not holders.streams.has_free:
            leaving = self._next_to_go(sparing=source)
            count += holders.lengths[leaving] if self._can_park(leaving, sparing=source) else 0
        return count

    def _next_to_go(self, *, sparing: int | None) -> int:
        """The kept prefix that makes room: the least recently used; `sparing` only as the last."""
        idle = self._holders.idle
        return next((holder for holder in idle if holder != sparing), idle[0])

    def _can_park(self, holder: int, *, sparing: int | None = None) -> bool:
        """Whether it is worth that, and has a place in host memory, beside `sparing`."""
        length = self._holders.lengths[holder]
        least = max(LEAST_IN_PIECE, WORTH_PARKING * length)
        if self._holders.tree.num_alone(holder) < least or length > self._allowance.most_whole:
            return False
        return self._in_the_way(holder, sparing=sparing) is not None

    def _in_the_way(self, holder: int, *, sparing: int | None) -> list[int] | None:
        spared = {holder} if sparing is None else {holder, sparing}
        length = self._holders.lengths[holder]
        return self._holders.residency.in_the_way(length, sparing=spared)

    def _evict(self, holder: int, *, sparing: int | None) -> None:
        """A kept prefix leaves its stream, for host memory or for good."""
        holders = self._holders
        if not self._can_park(holder, sparing=sparing):
            holders.drop(holder)
            return
        for one in self._in_the_way(holder, sparing=sparing) or ():
            holders.drop(one)
        length = holders.lengths.pop(holder)
        self._edits.append(Park(holder, 0, length))
        holders.residency.park(holder, length)
        holders.streams.remove(holder)
        self._allowance.take(length)
