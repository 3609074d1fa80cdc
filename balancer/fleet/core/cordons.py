"""Cordons: agents that operators want to get no new work until they resume them.

An agent draws a new id when it starts, but keeps its name. When a cordoned agent restarts, its
cordon moves to the new id, so a drained host stays drained. Of several agents with one name, the
cordon applies to one at a time.

Invariants: at most `MAX_CORDONS` cordons are remembered, including those of absent agents; a
deadline belongs to a cordoned agent.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping

from ....shared.inference import AgentId
from ..priority_queue import PriorityQueue
from ..view import Cordon

MAX_CORDONS = 4096
"""Cordons that are remembered; the oldest is forgotten first."""


class Cordons:
    """The cordons, by the present or last ids of agents."""

    def __init__(self) -> None:
        self._cordons: OrderedDict[AgentId, Cordon] = OrderedDict()
        self._deadlines: PriorityQueue[AgentId, float] = PriorityQueue()

    def __len__(self) -> int:
        return len(self._cordons)

    def get(self, id: AgentId) -> Cordon | None:
        """Return the cordon of an agent."""
        return self._cordons.get(id)

    def restored(self, cordons: Iterable[Cordon]) -> None:
        """Restore the cordons from before the balancer's start, oldest first."""
        for cordon in cordons:
            self.keep(cordon.first, cordon)

    def meet(self, deadlines: Mapping[AgentId, float | None]) -> None:
        """Set the deadlines of cordons, by the first ids of their agents; others keep theirs."""
        for id, cordon in self._cordons.items():
            if cordon.first in deadlines:
                self._set_deadline(id, deadlines[cordon.first])

    def without(self, desired: Container[AgentId]) -> list[AgentId]:
        """Return the agents whose cordon is not in `desired`."""
        return [id for id, cordon in self._cordons.items() if cordon.first not in desired]

    def missing(self, desired: Iterable[Cordon]) -> list[Cordon]:
        """Return the cordons in `desired` that are unknown."""
        known = {cordon.first for cordon in self._cordons.values()}
        return [cordon for cordon in desired if cordon.first not in known]

    def add(self, id: AgentId, name: str, deadline: float | None) -> None:
        """Give an agent no new work; requests that still run at `deadline` move then."""
        known = self._cordons.get(id)
        self.remove(id)
        self.keep(id, known or Cordon(id, name))
        self._set_deadline(id, deadline)

    def _set_deadline(self, id: AgentId, deadline: float | None) -> None:
        if deadline is not None:
            self._deadlines.set(id, deadline)
        elif id in self._deadlines:
            self._deadlines.remove(id)

    def remove(self, id: AgentId) -> None:
        """Let the agent get work again. Returns whether it was cordoned."""
        self._cordons.pop(id, None)
        self._set_deadline(id, None)

    def joined(self, id: AgentId, name: str, is_here: Callable[[AgentId], bool]) -> bool:
        """Return whether the joining agent is cordoned, perhaps under a former id."""
        if id in self._cordons:
            return True
        for old, cordon in self._cordons.items():
            if cordon.name == name and not is_here(old):
                self.remove(old)
                self.keep(id, cordon)
                return True
        return False

    def next_deadline(self) -> float | None:
        """Return when requests of a cordoned agent have to move."""
        first = self._deadlines.first()
        return None if first is None else first[0]

    def due(self, now: float) -> list[AgentId]:
        """Return the agents whose requests have to move now."""
        return self._deadlines.pop_until(now)

    def keep(self, id: AgentId, cordon: Cordon) -> None:
        """Assign the cordon to the agent with this id from now on."""
        self._cordons[id] = cordon
        while len(self._cordons) > MAX_CORDONS:
            self.remove(next(iter(self._cordons)))

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if len(self._cordons) > MAX_CORDONS or set(self._deadlines) - self._cordons.keys():
            raise RuntimeError("too many cordons, or a deadline without one")
