"""Who has which stream: running sequences and kept prefixes, their tokens, and how many have cells.

Invariant: a slot in use has a stream; a kept prefix either has a stream, or is parked, as a whole.
"""

from collections.abc import Iterable, Sequence

from ..step import Clear, Edit, HandOver
from .prefix_marks import Mark
from .prefix_tree import PrefixTree
from .residency import Residency
from .streams import Streams


class StreamHolders:
    """Slots are numbers below `slots`, kept prefixes those below `holders`.

    What has to be done to the cells is appended to `edits`.
    """

    def __init__(
        self, *, slots: int, holders: int, num_streams: int, most_parked: int, edits: list[Edit]
    ) -> None:
        self.lengths: dict[int, int] = {}
        """Of those who have a stream."""
        self.streams = Streams(num_streams)
        self.residency = Residency(range(slots, holders), most_parked=most_parked)
        self.tree = PrefixTree()
        self.used_at: dict[int, int] = {}
        self._slots = slots
        self._edits = edits
        self._num_uses = 0

    @property
    def num_in_use(self) -> int:
        """Cells of slots."""
        return sum(count for holder, count in self.lengths.items() if holder < self._slots)

    @property
    def running(self) -> list[int]:
        """Slots that have a stream."""
        return [holder for holder in self.lengths if holder < self._slots]

    @property
    def idle(self) -> list[int]:
        """Kept prefixes that have a stream, the least recently used first."""
        return [holder for holder in self.residency if holder in self.streams]

    def num_computed(self, holder: int) -> int:
        """Its cells, wherever they are."""
        return self.lengths.get(holder, 0) + self.residency.parked(holder)

    def begins_with(self, holder: int, keys: list[int]) -> bool:
        """Whether its tokens begin so."""
        return self.tree.keys(holder)[: len(keys)] == keys

    def use(self, holder: int) -> None:
        """It is the most recently used."""
        self._num_uses += 1
        self.used_at[holder] = self._num_uses
        self.residency.touch(holder)

    # ---- they come

    def announce(
        self, slot: int, keys: list[int], most_shared: int | None, marks: Sequence[Mark] = ()
    ) -> None:
        """Others may share what `slot` has or is going to have."""
        self.tree.insert(slot, keys[:most_shared])
        self.tree.mark(slot, marks)
        self.use(slot)

    def hand_over(self, source: int, slot: int, length: int) -> None:
        """`slot` goes on in the stream of a kept prefix, from its first `length` cells on."""
        self._edits.append(HandOver(source, slot))
        if length < self.lengths.pop(source):
            self._edits.append(Clear(slot, length))
        self.lengths[slot] = length
        self.streams.hand_over(source, slot)
        self.residency.remove(source)
        self._unlist(source)

    def keep(self, slot: int, keys: list[int]) -> None:
        """`keys`, which `slot` has computed, become a kept prefix. There must be a free number."""
        holder = self.residency.put()
        self.tree.insert(holder, keys)
        if covering := self._kept(self.tree.others_with_all_of(holder)):
            self.tree.remove(holder)
            self.residency.remove(holder)
            self.use(max(covering))
            return
        self._edits.append(HandOver(slot, holder))
        if len(keys) < self.lengths.pop(slot):
            self._edits.append(Clear(holder, len(keys)))
        self.lengths[holder] = len(keys)
        self.streams.hand_over(slot, holder)
        for within in self._kept(self.tree.others_within(holder)):
            self.drop(within)
        self.use(holder)

    def make_number(self) -> bool:
        """Whether there is a number for one more; the oldest one goes for it."""
        if not self.residency.has_free and (oldest := self.residency.oldest) is not None:
            self.drop(oldest)
        return self.residency.has_free

    # ---- they go

    def drop(self, holder: int) -> None:
        """A kept prefix goes, and its number is free."""
        self.residency.remove(holder)
        self._edits.append(Clear(holder))
        self.forget(holder, is_cleared=True)

    def forget(self, holder: int, *, is_cleared: bool = False) -> None:
        """`holder` gives up its stream, if it has one, and nobody finds it any more."""
        if holder in self.streams:
            if not is_cleared:
                self._edits.append(Clear(holder))
            self.streams.remove(holder)
            del self.lengths[holder]
        if holder in self.tree:
            self._unlist(holder)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        self.tree.check_integrity()
        self.residency.check_integrity()
        self.streams.check_integrity()
        _check(all(holder in self.streams for holder in self.lengths), "streams")
        for holder in self.residency:
            has_stream, parked = holder in self.streams, self.residency.parked(holder)
            _check(has_stream != bool(parked), f"kept prefix {holder} is not in one place")
            _check(self.num_computed(holder) == self.tree.length(holder), f"keys of {holder}")

    def _kept(self, holders: Iterable[int]) -> list[int]:
        return [holder for holder in holders if holder in self.residency]

    def _unlist(self, holder: int) -> None:
        self.tree.remove(holder)
        del self.used_at[holder]


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"memory out of order: {finding}")
