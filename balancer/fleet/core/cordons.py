"""Agents that operators want to get no new work, until they resume them.

An agent draws its id anew when it starts, and keeps its name. So when one starts again, the cordon
is of its new id: a drained host stays drained. Of several agents with one name, a cordon is of one
at a time.

Invariants: at most `MAX_CORDONS` are remembered, also of agents that are not here; a deadline is of
an agent that is cordoned.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping

from ....shared.inference import AgentId
from ..priority_queue import PriorityQueue
from ..view import Cordon

MAX_CORDONS = 4096
"""Cordons that are remembered; the oldest is forgotten first."""


class Cordons:
    """By the ids that agents have now, or had last."""

    def __init__(self) -> None:
        self._cordons: OrderedDict[AgentId, Cordon] = OrderedDict()
        self._deadlines: PriorityQueue[AgentId, float] = PriorityQueue()

    def __len__(self) -> int:
        return len(self._cordons)

    def get(self, id: AgentId) -> Cordon | None:
        """The cordon of an agent."""
        return self._cordons.get(id)

    def restored(self, cordons: Iterable[Cordon]) -> None:
        """These were there before the balancer started, oldest first."""
        for cordon in cordons:
            self.keep(cordon.first, cordon)

    def meet(self, deadlines: Mapping[AgentId, float | None]) -> None:
        """Deadlines of cordons by their first agents; those that are not among them keep theirs."""
        for id, cordon in self._cordons.items():
            if cordon.first in deadlines:
                self._set_deadline(id, deadlines[cordon.first])

    def without(self, desired: Container[AgentId]) -> list[AgentId]:
        """The agents whose cordon, by its first agent, is none of `desired`."""
        return [id for id, cordon in self._cordons.items() if cordon.first not in desired]

    def missing(self, desired: Iterable[Cordon]) -> list[Cordon]:
        """The cordons of `desired` that are not known here."""
        known = {cordon.first for cordon in self._cordons.values()}
        return [cordon for cordon in desired if cordon.first not in known]

    def add(self, id: AgentId, name: str, deadline: float | None) -> None:
        """An agent gets no new work; what it runs at `deadline` moves then."""
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
        """Let the agent get work again. Returns whether it got none."""
        self._cordons.pop(id, None)
        self._set_deadline(id, None)

    def joined(self, id: AgentId, name: str, is_here: Callable[[AgentId], bool]) -> bool:
        """Whether the joining agent is cordoned, perhaps under a former id."""
        if id in self._cordons:
            return True
        for old, cordon in self._cordons.items():
            if cordon.name == name and not is_here(old):
                self.remove(old)
                self.keep(id, cordon)
                return True
        return False

    def next_deadline(self) -> float | None:
        """When requests of a cordoned agent are to end."""
        first = self._deadlines.first()
        return None if first is None else first[0]

    def due(self, now: float) -> list[AgentId]:
        """Agents whose requests are to end now."""
        return self._deadlines.pop_until(now)

    def keep(self, id: AgentId, cordon: Cordon) -> None:
        """The cordon is of the agent with this id from now on."""
        self._cordons[id] = cordon
        while len(self._cordons) > MAX_CORDONS:
            self.remove(next(iter(self._cordons)))

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if len(self._cordons) > MAX_CORDONS or set(self._deadlines) - self._cordons.keys():
            raise RuntimeError("too many cordons, or a deadline without one")
