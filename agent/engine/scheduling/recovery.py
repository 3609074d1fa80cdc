"""Recovery after a failed step: sequences compute again or end, or fewer cells count.

Each method takes the step that was planned last, after its edits were carried out.
"""

from ....shared.errors import EngineFailed
from ....shared.inference import Notice
from ..sequence import SequenceOutput
from ..step import Copy, Place, Restore, Step
from .state import SchedulerState

_UNUSABLE = Notice("stored_prompt_unusable", "the stored prompt could not be loaded into the cache")


class Recovery:
    """Changes the queue and the memory so that the next step is planned as usual."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._queue = state.queue
        self._memory = state.memory
        self._tally = state.tally

    def make_room(self, step: Step) -> list[SequenceOutput]:
        """Count fewer cells until a sequence has left, after the cache took fewer tokens.

        The next step then finds room as usual. A sequence that does not fit alone fails.
        """
        if step.size == 1 and len(self._queue.running) > 1 and self._empty_cells():
            return []  # where adapters take turns, no step is large enough to evict anything
        if len(self._queue.running) > 1 or (step.size > 1 and not step.is_whole):
            self._memory.room.limit(max(1, step.size // 2))
            return []
        if self._empty_cells():
            return []
        return self.fail(step, "the engine has no room for this sequence, even alone")

    def _empty_cells(self) -> bool:
        """Evict all kept prefixes that take cells. Returns whether there were any."""
        room, num_kept = self._memory.room, self._memory.room.num_kept
        self._memory.make_room(room.num_available)
        return room.num_kept < num_kept

    def take_back(self, step: Step) -> None:
        """Discard the cells of an aborted step, because it is unknown which cells were written.

        The step's sequences compute their tokens again.
        """
        for run in step.runs:
            if self._state.capacity.can_share and run.media is None:
                self._memory.discard(run.slot)
            else:
                self._state.requeue(run.slot)

    def read_instead(self, step: Step, holders: tuple[int, ...]) -> list[SequenceOutput]:
        """Restart the sequences that were to begin with the lost states of `holders`."""
        lost = _left_empty(step, holders)
        others = lost - {*holders, *self._queue.running}
        names = [name for one in (*holders, *others) for name in self._memory.lose(one)]
        outputs = self._unusable(step, (*holders, *names))
        for slot in lost & self._queue.running.keys():
            self._tally.shared(-self._queue.running[slot].begin_anew())
            self._state.requeue(slot)
        return outputs

    def _unusable(self, step: Step, holders: tuple[int, ...]) -> list[SequenceOutput]:
        """Return a notice to the sequences whose stored prompt could not be loaded."""
        loading = {edit.holder for edit in step.edits if isinstance(edit, Restore)}
        slots = loading & self._queue.running.keys() & {*holders}
        told = [self._queue.running[slot] for slot in slots]
        told += [one for one in self._queue.everybody if one.adopted_as in holders]
        for one in told:
            one.adopted_as = None
        return [SequenceOutput(one.id, notices=(_UNUSABLE,)) for one in told]

    def fail(self, step: Step, message: str) -> list[SequenceOutput]:
        """End the sequences of the step with an error, and give up their cells."""
        outputs = []
        for run in step.runs:
            one = self._state.clear(run.slot)
            outputs.append(SequenceOutput(one.id, (), one.end(EngineFailed(message))))
        return outputs


def _left_empty(step: Step, holders: tuple[int, ...]) -> set[int]:
    """Return `holders` and all holders that were to share cells with them."""
    empty = set(holders)
    for edit in step.edits:
        if isinstance(edit, Copy | Place) and edit.source in empty:
            empty.add(edit.holder)
    return empty
