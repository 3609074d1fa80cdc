"""How much memory models need, as agents estimated it from their files.

Invariant: at most `MAX_KNOWN` are remembered, the latest ones.
"""

from collections import OrderedDict
from collections.abc import Hashable

from ...shared.models.assignments import Assignment, loaded_with
from .members import AgentReport

MAX_KNOWN = 1024


class MemoryNeeds:
    """Bytes by what decides them: the files, adapters, slots, context and engine options."""

    def __init__(self) -> None:
        self._needed: OrderedDict[Hashable, int] = OrderedDict()

    def learn(self, report: AgentReport) -> None:
        """Remember what an agent estimated."""
        work = report.work
        if work is None or work.assignment is None or work.needed is None:
            return
        key = _key(work.assignment)
        self._needed[key] = work.needed
        self._needed.move_to_end(key)
        if len(self._needed) > MAX_KNOWN:
            self._needed.popitem(last=False)

    def of(self, assignment: Assignment) -> int | None:
        """Bytes that it needs, if an agent told."""
        return self._needed.get(_key(assignment))

    def fits(self, assignment: Assignment, report: AgentReport) -> bool:
        """Whether the agent has the memory, as far as is known."""
        needed = self.of(assignment)
        return needed is None or not report.memory or needed <= report.memory


def _key(assignment: Assignment) -> Hashable:
    return loaded_with(assignment), assignment.adapters, assignment.slots
