"""What becomes of a step that did not work: who computes again, who ends, what is believed of room.

Each method takes the step that was planned last, after its edits were carried out.
"""

from ....shared.errors import EngineFailed
from ....shared.inference import Notice
from ..kv_cache.memory import Memory
from ..sequence import SequenceOutput
from ..statistics import Tally
from ..step import Copy, Load, Restore, Step
from .planner import Planner
from .queue import SequenceQueue

_UNUSABLE = Notice("stored_prompt_unusable", "the stored prompt could not be loaded into the cache")


class Recovery:
    """Changes the queue and the memory so that the next step is planned as always."""

    def __init__(
        self, queue: SequenceQueue, memory: Memory, planner: Planner, tally: Tally
    ) -> None:
        self._queue = queue
        self._memory = memory
        self._planner = planner
        self._tally = tally

    def make_room(self, step: Step) -> list[SequenceOutput]:
        """The cells hold less than they should: believe in fewer until somebody has left.

        The next step then finds room as always. A sequence that cannot go on alone has failed.
        """
        if len(self._queue.running) > 1 or step.size > 1:
            self._memory.lower_limit(max(1, step.size // 2))  # the last one to run needs one
            return []
        if self._memory.empty_cells():
            return []
        return self.fail(step, "the engine has no room for this sequence, even alone")

    def take_back(self, step: Step) -> None:
        """Nobody knows which cells were written: they are computed anew."""
        for run in step.runs:
            if self._memory.can_share:
                self._memory.sweep(run.slot)
            else:
                self._planner.retreat(run.slot)

    def read_instead(self, step: Step, slots: tuple[int, ...]) -> list[SequenceOutput]:
        """Whoever was to begin with what could not be loaded begins anew, as do its sharers."""
        outputs = []
        for edit in step.edits:
            if isinstance(edit, Restore) and edit.slot in slots:
                self._memory.lose(edit.source)
        wanted_stored = {edit.slot for edit in step.edits if isinstance(edit, Load)}
        for slot in _left_empty(step, slots):
            one = self._queue.running[slot]
            self._tally.shared(-one.begin_anew())
            self._planner.retreat(slot)
            if slot in wanted_stored:
                outputs.append(SequenceOutput(one.id, notices=(_UNUSABLE,)))
        return outputs

    def fail(self, step: Step, message: str) -> list[SequenceOutput]:
        """The sequences that were in it end, once their cells are given up."""
        outputs = []
        for run in step.runs:
            self._memory.clear(run.slot)
            one = self._queue.leave(run.slot)
            outputs.append(SequenceOutput(one.id, (), one.end(EngineFailed(message))))
        return outputs


def _left_empty(step: Step, slots: tuple[int, ...]) -> set[int]:
    """Slots that were to load and could not, and those that were to share with them."""
    empty: set[int] = set()
    for edit in step.edits:
        if isinstance(edit, Load | Restore) and edit.slot in slots:
            empty.add(edit.slot)
        elif isinstance(edit, Copy) and edit.source in empty:
            empty.add(edit.holder)
    return empty
