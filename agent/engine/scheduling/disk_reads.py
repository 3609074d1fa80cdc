"""Reads of prefixes from disk for waiting sequences, one at a time.

A sequence begins with the prefix in memory, or waits until the disk's longer prefix is read, if
reading is faster than computing. Other sequences run in the meantime. A long prefix is read in
parts, so that host memory holds one part at a time. While one part is copied to the cells, the
next part is read.
"""

from dataclasses import dataclass

from ..capacity import Capacity
from ..cost.step_cost import StepCost
from ..kv_cache.memory import Memory
from ..prompt_store.blocks import PART_BYTES, OnDisk, ReadBlocks
from ..prompt_store.stored_prompt import StoredPrompt
from ..sequence import SequenceId
from .progress import Progress

LEAST_GAIN = 4
"""A read must save at least one block divided by this number; a smaller gain is not worth it."""

LEAST_PATIENCE = 2.0
"""Default patience in seconds: long enough for a sleeping disk to wake up."""

UNKNOWN_PATIENCE = 30.0
"""Patience in seconds if the cost of computing is unknown."""


@dataclass(frozen=True, slots=True)
class DiskRead:
    """A read of `blocks` for a waiting sequence. Report its result to `arrived` with the id."""

    id: SequenceId
    blocks: ReadBlocks


class DiskReads:
    """Decides on reads, returns them to the caller, and takes their results."""

    def __init__(self, capacity: Capacity, memory: Memory, cost: StepCost) -> None:
        self._memory = memory
        self._cost = cost
        self._can_extend = capacity.can_share and not capacity.num_streams
        """Whether a prompt whose beginning is in the cells can adopt a later part."""
        self._largest = capacity.largest_piece
        self._most = PART_BYTES // capacity.cell_bytes if capacity.cell_bytes else None
        self._current: DiskRead | None = None
        self._asked: list[DiskRead] = []

    @property
    def is_reading(self) -> bool:
        """Return whether a read is in progress."""
        return self._current is not None

    def waits(self, one: Progress, num_ready: int) -> bool:
        """Return whether `one`, which can begin with `num_ready` tokens, waits for the disk."""
        found = one.on_disk
        if found is None or not self._memory.allowance.is_possible(self._largest):
            return False
        start, stop = self._start(num_ready, found), found.usable(one.most_reused)
        has_gone = start < one.num_read_from_disk  # or it could not be used
        gain = stop - num_ready
        is_little = LEAST_GAIN * gain < found.block
        if has_gone or is_little or not self._pays(num_ready, gain, stop - start, found):
            one.on_disk = None
        return one.on_disk is not None

    def ask(self, one: Progress, num_ready: int) -> None:
        """Start a read of the next part that `one` waits for, unless a read is in progress."""
        found = one.on_disk
        if found is None or self._current is not None:
            return
        start, stop = self._start(num_ready, found), found.usable(one.most_reused)
        if self._most is not None and self._can_extend:
            stop = min(stop, start + max(found.block, found.whole(self._most)))
        blocks = ReadBlocks(
            prompt=one.history.part(0, stop),
            names=found.names[: stop // found.block],
            start=start,
            patience=self._patience(start, stop - start),
            checkpoint=None if found.checkpoint is None else found.checkpoint.name,
        )
        self._current = DiskRead(one.id, blocks)
        self._asked.append(self._current)

    def take(self) -> list[DiskRead]:
        """Return the reads requested since the last call."""
        asked, self._asked = self._asked, []
        return asked

    def arrived(self, one: Progress | None, prefix: StoredPrompt | None) -> None:
        """Take the prefix that was read for `one`; `None` is a sequence that no longer waits.

        `prefix` has the tokens that could be read.
        """
        read, self._current = self._current, None
        if read is None or one is None or one.on_disk is None:
            return
        length = 0 if prefix is None else len(prefix.prompt)
        if length < len(read.blocks.prompt) or length == one.on_disk.usable(one.most_reused):
            one.on_disk = None
        if prefix is not None:
            one.take_from_disk(prefix)

    def _start(self, num_ready: int, found: OnDisk) -> int:
        """Return where to begin reading: after the whole blocks in memory, if they can be used."""
        return found.whole(num_ready) if self._can_extend else 0

    def _pays(self, num_ready: int, gain: int, num_read: int, found: OnDisk) -> bool:
        computing = self._cost.prefill(gain, num_ready)
        return not computing or computing > found.reading(num_read)

    def _patience(self, start: int, num_tokens: int) -> float:
        computing = self._cost.prefill(num_tokens, start)
        return max(LEAST_PATIENCE, computing) if computing else UNKNOWN_PATIENCE
