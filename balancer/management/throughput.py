"""Counts in, rates out: the tokens a second of the fleet and of each agent.

Invariant: a rate covers the time since somebody last looked, or since the agent connected, and
never less than `MIN_SECONDS`; a look sooner than that is answered with the one before.
"""

from dataclasses import dataclass, field

from ...shared.inference import AgentId
from ..fleet.view import AgentView, FleetView

MIN_SECONDS = 0.5
"""A shorter stretch says more about when frames arrive than about how fast the fleet is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Tokens per second over the last `seconds`; `agents` has one entry for each connected one."""

    seconds: float = 0.0
    total: float = 0.0
    agents: dict[AgentId, float] = field(default_factory=dict)


class Meter:
    """Turns what has been counted so far into rates, by comparing with the last look."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._total = 0
        self._counts: dict[AgentId, int] = {}
        self._last = Throughput()

    def look(self, view: FleetView, now: float) -> Throughput:
        """The rates at `now` (seconds, monotonic). Costs the number of agents."""
        if self._looked_at is None:
            self._last = _since_connected(view)
        elif now - self._looked_at < MIN_SECONDS:
            return self._last
        else:
            self._last = self._since_last(view, now - self._looked_at)
        self._looked_at = now
        self._total = view.tokens_total
        self._counts = {agent.id: agent.num_tokens for agent in view.agents}
        return self._last

    def _since_last(self, view: FleetView, seconds: float) -> Throughput:
        return Throughput(
            seconds=seconds,
            total=(view.tokens_total - self._total) / seconds,
            agents={agent.id: self._rate(agent, seconds) for agent in view.agents},
        )

    def _rate(self, agent: AgentView, seconds: float) -> float:
        before = self._counts.get(agent.id)
        return _average(agent) if before is None else (agent.num_tokens - before) / seconds


def _since_connected(view: FleetView) -> Throughput:
    rates = {agent.id: _average(agent) for agent in view.agents}
    return Throughput(total=sum(rates.values()), agents=rates)


def _average(agent: AgentView) -> float:
    return agent.num_tokens / max(agent.connected_seconds, MIN_SECONDS)
