"""The state that the scheduler's parts share: the sequences, the cells, and the step costs."""

from bisect import insort
from collections import Counter
from operator import attrgetter

from ..capacity import BLOCK, Capacity
from ..cost.move_cost import MOST_BYTES
from ..integrity import check
from ..kv_cache.allowance import LEAST_IN_PIECE
from ..kv_cache.checkpoint_memory import CheckpointMemory
from ..kv_cache.greedy_dual import GreedyDual
from ..kv_cache.handed import MOST_CHECKPOINTS
from ..kv_cache.least_recently_used import LeastRecentlyUsed
from ..kv_cache.memory import Memory, Policy
from ..kv_cache.stream_memory import StreamMemory
from ..kv_cache.unified_memory import UnifiedMemory
from ..prompt_store.blocks import Left, whole
from ..sequence import SequenceId
from ..statistics import Tally
from .background import Background
from .disk_reads import DiskReads
from .exports import Exports
from .progress import Progress
from .step_budget import StepBudget

_rank = attrgetter("rank")


class SequenceQueue:
    """Waiting sequences by rank, and running sequences by slot. Read the attributes only.

    Invariant: a sequence waits or runs, once; a slot is free or holds one sequence.

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
        """Remove a sequence from the waiting sequences. Unknown ids are ignored."""
        self.waiting = [one for one in self.waiting if one.id != sequence_id]

    def last(self) -> int:
        """Return the slot of the running sequence with the worst rank."""
        return max(self.running, key=lambda slot: self.running[slot].rank)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        slots = sorted([*self._free, *self.running])
        check(slots == list(range(self._num_slots)), f"slots {slots}")
        ids = [one.id for one in (*self.running.values(), *self.waiting)]
        check(len(set(ids)) == len(ids), f"sequences {ids}")
        adapters = Counter(one.adapter for one in self.running.values())
        check(self.adapters == adapters and all(adapters.values()), f"adapters {self.adapters}")
        check(self.waiting == sorted(self.waiting, key=_rank), "order of the waiting")


class SchedulerState:
    """One record for all parts of the scheduler. Between two steps it is consistent."""

    def __init__(
        self, *, slots: int, max_stall: float, end_tokens: frozenset[int], capacity: Capacity
    ) -> None:
        self.capacity = capacity
        self.end_tokens = end_tokens
        self.queue = SequenceQueue(slots)
        self.memory = _memory(slots, capacity)
        self.tally = Tally()
        self.budget = StepBudget(capacity, max_stall)
        self.background = Background(
            max_stall,
            may_pause=capacity.most_mixed < capacity.batch_size,
            may_stop=capacity.can_share,
        )
        self.exports = Exports(self.memory, self.budget.moves, are_whole=bool(capacity.num_streams))
        self.disk_reads = DiskReads(capacity, self.memory, self.budget.cost)
        self.notes_left = False
        """Whether prefixes that sequences leave are recorded."""
        self.left: list[Left] = []

    def leave(self, slot: int) -> None:
        """End the sequence in `slot`; its prefix stays in the cache as long as there is room."""
        one = self.queue.leave(slot)
        self.memory.leave(slot)
        self.memory.room.limit()
        if self.notes_left:
            self._note(one)

    def _note(self, one: Progress) -> None:
        """Record the prefix that `one` leaves, which may be worth copying to disk.

        A batch request rarely comes again, so for it only the part that other sequences had
        computed is recorded.
        """
        if one.window is not None or one.history.has_media:
            return
        num_tokens = one.num_cached if one.is_background else one.num_computed
        keys = one.history.keys[:num_tokens]
        checkpoints = self.memory.checkpoints(keys)[-MOST_CHECKPOINTS:]
        length = whole(num_tokens) if self.memory.can_cut else max(checkpoints, default=0)
        if length >= BLOCK:
            seconds = self.budget.cost.prefill(length, 0)
            prompt = one.history.part(0, length)
            self.left.append(Left(prompt, seconds, checkpoints, marks=tuple(one.marks)))

    def preempt(self, slot: int) -> None:
        """Preempt the sequence in `slot`: it gives up its cells, and waits to continue.

        If the model has checkpoints, the sequence's state becomes one. Otherwise nothing is kept,
        since a kept prefix would be the next to be evicted.
        """
        self.memory.leave(slot, keeps=not self.memory.can_cut)
        self._wait_again(self.queue.leave(slot))

    def requeue(self, slot: int) -> None:
        """Requeue the sequence in `slot`, whose cells are wrong; it computes all tokens again."""
        self._wait_again(self.clear(slot))

    def clear(self, slot: int) -> Progress:
        """Remove and return the sequence in `slot`; nothing that it computed is kept."""
        self.memory.leave(slot, keeps=False)
        return self.queue.leave(slot)

    def _wait_again(self, one: Progress) -> None:
        one.rewind()
        self.queue.wait(one)


def _memory(slots: int, capacity: Capacity) -> Memory:
    policy: Policy = GreedyDual() if capacity.checkpoint_gap else LeastRecentlyUsed()
    if capacity.num_streams:
        return StreamMemory(
            slots=slots,
            holders=capacity.num_holders,
            num_streams=capacity.num_streams,
            num_cells=capacity.num_cells,
            policy=policy,
            most_parked=capacity.most_parked,
        )
    if capacity.checkpoint_gap:
        return CheckpointMemory(
            slots=slots,
            holders=capacity.num_holders,
            num_cells=capacity.num_cells,
            policy=policy,
            gap=capacity.checkpoint_gap,
            most_parked=capacity.most_parked,
            block=capacity.block,
            cell_bytes=max(1, capacity.cell_bytes),
            state_bytes=capacity.state_bytes,
            window=capacity.window,
            copies_state=capacity.copies_state,
        )
    return UnifiedMemory(
        slots=slots,
        holders=capacity.num_holders,
        num_cells=capacity.num_cells,
        policy=policy,
        most_parked=capacity.most_parked,
        can_share=capacity.can_share,
        block=min(capacity.block, max(LEAST_IN_PIECE, MOST_BYTES // (capacity.cell_bytes or 1))),
        is_compact=capacity.is_compact,
    )
