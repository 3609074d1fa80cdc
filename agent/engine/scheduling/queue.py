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
    """The sequences of the scheduler; its attributes are for reading only.

    `running` is by slot, in the order of joining; `waiting` is by rank. `adapters` counts the
    running sequences of each adapter; `None` is the model without adapters.
    """

    def __init__(self, slots: int) -> None:
        self.running: dict[int, Progress] = {}
        self.waiting: list[Progress] = []
        self.adapters: Counter[str | None] = Counter()
        self._num_slots = slots
        self._free = list(range(slots))

    @property
    def everybody(self) -> tuple[Progress, ...]:
        """The running and the waiting sequences."""
        return (*self.running.values(), *self.waiting)

    @property
    def num_streaming(self) -> int:
        """The number of generating sequences."""
        return sum(one.is_generating for one in self.running.values())

    @property
    def candidates(self) -> list[Progress]:
        """The waiting sequences for which there are slots, best rank first."""
        return self.waiting[: len(self._free)]

    @property
    def num_stored(self) -> int:
        """The number of tokens whose states are stored for waiting sequences."""
        return sum(one.num_stored for one in self.waiting)

    def wait(self, one: Progress) -> None:
        """Insert a waiting sequence by rank."""
        insort(self.waiting, one, key=_rank)

    def begin(self, one: Progress) -> int:
        """Move a waiting sequence to a slot. Returns the slot."""
        self.waiting.remove(one)
        slot = self._free.pop()
        self.running[slot] = one
        self.adapters[one.adapter] += 1
        return slot

    def leave(self, slot: int) -> Progress:
        """Free `slot`. Returns its sequence."""
        self._free.append(slot)
        one = self.running.pop(slot)
        self.adapters[one.adapter] -= 1
        if not self.adapters[one.adapter]:
            del self.adapters[one.adapter]
        return one

    def slot_of(self, sequence_id: SequenceId) -> int | None:
        """Return the slot of a running sequence, or `None`."""
        return next((s for s, one in self.running.items() if one.id == sequence_id), None)

    def find(self, sequence_id: SequenceId) -> Progress | None:
        """Return the waiting or running sequence with this id, or `None`."""
        return next((one for one in self.everybody if one.id == sequence_id), None)

    def stop_waiting(self, sequence_id: SequenceId) -> None:
        """Remove a sequence from the waiting ones. Unknown ids are ignored."""
        self.waiting = [one for one in self.waiting if one.id != sequence_id]

    def last(self) -> int:
        """Return the slot of the running sequence with the worst rank."""
        return max(self.running, key=lambda slot: self.running[slot].rank)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
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
