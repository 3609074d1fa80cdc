"""A reader of deltas: what it adds up must be what a view says."""

from dataclasses import fields, replace
from typing import Any

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.view import AgentView, FleetTotals, FleetView, RequestView
from arriero.balancer.management.answer_types import Agent, marked
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.reports.figures import Clock
from tests.balancer.fleet.builders import seen

TIMES: dict[str, Any] = dict.fromkeys(marked(Agent, Clock), 0.0)


class Mirror:
    """The agents of a fleet, followed by deltas alone, and its requests as of the last look."""

    def __init__(self) -> None:
        self.revision = 0
        self.agents: dict[AgentId, AgentView] = {}
        self.requests: dict[RequestId, RequestView] = {}

    def follow(self, fleet: Fleet, now: float) -> None:
        """Apply what is new, and compare. Times go by without a change, so they are left out."""
        before = self.revision
        delta = seen(fleet, now).changes_since(before)
        assert delta is not None
        self.revision = delta.revision
        for agent in delta.agents:
            self.agents[agent.id] = replace(agent, **TIMES)
        for id, num_tokens in seen(fleet).tokens_since(before):
            self.agents[id] = replace(self.agents[id], num_tokens=num_tokens)
        for agent_id in delta.agents_left:
            self.agents.pop(agent_id, None)
        self._compare(seen(fleet, now).view(), delta.totals, is_news=delta.revision != before)

    def _compare(self, view: FleetView, totals: FleetTotals, *, is_news: bool) -> None:
        agents = {each.id: replace(each, **TIMES) for each in view.agents}
        assert self.agents == agents
        requests = {
            each.id: replace(each, waited_seconds=0.0, age_seconds=0.0) for each in view.requests
        }
        assert is_news or self.requests == requests, "requests changed, and the revision did not"
        self.requests = requests
        assert all(getattr(view, f.name) == getattr(totals, f.name) for f in fields(totals))
