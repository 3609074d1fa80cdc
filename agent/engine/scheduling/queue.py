"""Waiting sequences by rank, and running ones by slot.

Invariant: a sequence waits or runs, once; a slot is free or holds one sequence.
"""

from bisect import insort
from collections import Counter
from operator import attrgetter

from ..sequence import SequenceId
from .progress import Progress

_rank = attrgetter("rank")


class SequenceQueue:
    """`running` is by slot, in the order of joining; `waiting` by rank. For reading only.

    `adapters` says how many run under each, `None` standing for the model alone.
    """

    def __init__(self, slots: int) -> None:
        self.running: dict[int, Progress] = {}
        self.waiting: list[Progress] = []
        self.adapters: Counter[str | None] = Counter()
        self._num_slots = slots
        self._free = list(range(slots))

    @property
    def everybody(self) -> tuple[Progress, ...]:
        """Those who run and those who wait."""
        return (*self.running.values(), *self.waiting)

    @property
    def active(self) -> dict[int, Progress]:
        """Those who run and have something to compute, by slot."""
        return {slot: one for slot, one in self.running.items() if not one.is_saving}

    @property
    def num_streaming(self) -> int:
        """How many generate."""
        return sum(one.is_generating for one in self.active.values())

    @property
    def candidates(self) -> list[Progress]:
        """Those who wait and for whom there are slots, best first."""
        return self.waiting[: len(self._free)]

    @property
    def num_stored(self) -> int:
        """Tokens whose states are held for those who wait."""
        return sum(one.num_stored for one in self.waiting)

    def wait(self, one: Progress) -> None:
        """It waits, behind those of better rank."""
        insort(self.waiting, one, key=_rank)

    def begin(self, one: Progress) -> int:
        """It waits no longer and gets a slot, which is the answer."""
        self.waiting.remove(one)
        slot = self._free.pop()
        self.running[slot] = one
        self.adapters[one.adapter] += 1
        return slot

    def leave(self, slot: int) -> Progress:
        """`slot` is free again; the answer is whom it held."""
        self._free.append(slot)
        one = self.running.pop(slot)
        self.adapters[one.adapter] -= 1
        if not self.adapters[one.adapter]:
            del self.adapters[one.adapter]
        return one

    def slot_of(self, sequence_id: SequenceId) -> int | None:
        """Where it runs, if it does."""
        return next((s for s, one in self.running.items() if one.id == sequence_id), None)

    def find(self, sequence_id: SequenceId) -> Progress | None:
        """The sequence, if it waits or runs."""
        return next((one for one in self.everybody if one.id == sequence_id), None)

    def stop_waiting(self, sequence_id: SequenceId) -> None:
        """It waits no longer, if it did."""
        self.waiting = [one for one in self.waiting if one.id != sequence_id]

    def last(self) -> int:
        """The slot of the active sequence of the worst rank."""
        return max(self.active, key=lambda slot: self.running[slot].rank)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        slots = sorted([*self._free, *self.running])
        _check(slots == list(range(self._num_slots)), f"slots {slots}")
        ids = [one.id for one in (*self.running.values(), *self.waiting)]
        _check(len(set(ids)) == len(ids), f"sequences {ids}")
        adapters = Counter(one.adapter for one in self.running.values())
        _check(self.adapters == adapters and all(adapters.values()), f"adapters {self.adapters}")
        _check(self.waiting == sorted(self.waiting, key=_rank), "waiting out of order")


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"queue out of order: {finding}")
