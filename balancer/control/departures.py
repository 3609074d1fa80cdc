"""Places that are kept for agents that have gone a moment ago: most of them come back.

A model that nobody else has waits only as long as an agent takes to dial again, where one is spare
(`placement`).

Invariant: at most `MAX_KEPT` places are kept.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Set

from ...shared.inference import AgentId
from .members import Member

HOLD = 30.0
"""Seconds for which the place of an agent that has gone is kept."""

REDIAL = 3.0
"""Seconds within which an agent that lost its connection is back."""

MAX_KEPT = 4096


class Departures:
    """Agents that have gone, with their model and the time until which their place is kept."""

    def __init__(self) -> None:
        self._gone: OrderedDict[AgentId, tuple[str, str, float]] = OrderedDict()
        self._here: dict[AgentId, tuple[str, str | None]] = {}

    def look(self, members: Mapping[AgentId, Member], now: float) -> None:
        """Compare with the look before: who has gone, who is back."""
        for id in self._here.keys() - members.keys():
            name, model = self._here[id]
            if model is not None:
                self._gone[id] = (name, model, now + HOLD)
        new = members.keys() - self._here.keys()
        self._came_back(new, Counter(members[id].report.name for id in new))
        while self._gone and (self._first_end() <= now or len(self._gone) > MAX_KEPT):
            self._gone.popitem(last=False)
        self._here = {id: (m.report.name, m.model) for id, m in members.items()}

    def _came_back(self, ids: Set[AgentId], names: Counter[str]) -> None:
        """An agent that was started again has another id and the same name."""
        for id in list(self._gone):
            name, _, _ = self._gone[id]
            if id in ids:
                del self._gone[id]
            elif names[name]:
                names[name] -= 1
                del self._gone[id]

    def reserved(self) -> Counter[str]:
        """How many places of each model are kept."""
        return Counter(model for _, model, _ in self._gone.values())

    def redialling(self, now: float) -> set[str]:
        """The models of agents that may only have lost their connection."""
        return {model for _, model, until in self._gone.values() if now < until - HOLD + REDIAL}

    def next_change(self, now: float) -> float | None:
        """When the next one has been away for `REDIAL`, or the first place is given up."""
        redials = (until - HOLD + REDIAL for _, _, until in self._gone.values())
        coming = [time for time in redials if now < time]
        return min([*coming, self._first_end()]) if self._gone else None

    def _first_end(self) -> float:
        return next(iter(self._gone.values()))[2]
