"""Computes tokens per second of the fleet and of each agent from token counts.

Invariant: a rate covers the time since the last measurement, or since the agent connected. The
time counts as at least `MIN_SECONDS`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...shared.inference import AgentId
from ..fleet.view import AgentView

MIN_SECONDS = 0.5
"""Minimum seconds of a rate. Over a shorter time, single frames would determine the rate."""

MAX_RATES = 4096
"""Maximum agents whose last count is remembered for requests about single agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Tokens per second over the last `seconds`. `agents` has all agents that generated tokens."""

    seconds: float = 0.0
    total: float = 0.0
    agents: Mapping[AgentId, float] = field(default_factory=dict)

    def rate_of(self, agent: AgentId) -> float | None:
        """Return the rate of one agent; `None` before the first measurement."""
        return self.agents.get(agent, 0.0) if self.seconds else None


class Meter:
    """Measures the fleet's rates. The cost depends only on the number of changed agents."""

    def __init__(self, agents: Iterable[AgentView], tokens_total: int, now: float) -> None:
        """Measure from `now` on. `agents` are all agents at this time."""
        self._looked_at = now
        self._total = tokens_total
        self._counts = {agent.id: agent.num_tokens for agent in agents}

    def measure(
        self,
        counts: Iterable[tuple[AgentId, int]],
        left: Iterable[AgentId],
        tokens_total: int,
        now: float,
    ) -> Throughput:
        """Return the rates since the last measurement.

        `counts` has the total tokens of agents that sent tokens since then. `left` are agents that
        left.
        """
        seconds = max(now - self._looked_at, MIN_SECONDS)
        total = (tokens_total - self._total) / seconds
        rates = {id: self._count(id, num_tokens) / seconds for id, num_tokens in counts}
        for id in left:
            self._counts.pop(id, None)
        self._looked_at, self._total = now, tokens_total
        agents = {id: rate for id, rate in rates.items() if rate > 0}
        return Throughput(seconds=seconds, total=total, agents=agents)

    def _count(self, id: AgentId, num_tokens: int) -> int:
        """Return the agent's tokens since the last measurement, or since a later connection."""
        before = self._counts.get(id, 0)
        self._counts[id] = num_tokens
        return num_tokens - before if num_tokens >= before else num_tokens


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    num_tokens: int
    rate: float


class AgentRates:
    """Rates of single agents. Each rate covers the time since the last call for the agent."""

    def __init__(self) -> None:
        self._looks: dict[AgentId, _Look] = {}

    def rate(self, agent: AgentView, now: float) -> float:
        """Return the rate of one agent. Agents without calls for a long time are forgotten."""
        last = self._looks.pop(agent.id, None)
        if last is None or agent.num_tokens < last.num_tokens:
            rate = agent.num_tokens / max(agent.connected_seconds, MIN_SECONDS)
            last = _Look(now, agent.num_tokens, rate)
        elif now - last.at >= MIN_SECONDS:
            rate = (agent.num_tokens - last.num_tokens) / (now - last.at)
            last = _Look(now, agent.num_tokens, rate)
        self._looks[agent.id] = last
        if len(self._looks) > MAX_RATES:
            del self._looks[next(iter(self._looks))]
        return last.rate
