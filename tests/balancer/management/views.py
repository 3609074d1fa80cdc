"""Views of fleets that tests look at."""

from dataclasses import fields

from arriero.balancer.fleet.view import (
    AgentView,
    FleetDelta,
    FleetTotals,
    FleetView,
    RequestView,
    SlotsView,
)
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import Issue
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Statistics

MODEL = ModelInfo(
    name="demo", architecture="llama", parameters=1_200_000, size_bytes=8_000_000, context_size=1024
)


def agent_view(
    name: str,
    *,
    num_tokens: int = 0,
    connected_seconds: float = 10.0,
    busy: int = 0,
    total: int = 4,
    id: str | None = None,
    model: ModelInfo | None = MODEL,
    issues: tuple[Issue, ...] = (),
    statistics: Statistics | None = None,
) -> AgentView:
    """An agent that is ready; its id follows from its name unless it is given."""
    return AgentView(
        id=AgentId(id or f"id-{name}"),
        name=name,
        labels={"zone": "a"},
        version="0.1.0",
        state="ready" if model else "idle",
        slots=SlotsView(total=total, busy=busy),
        model=model,
        issues=issues,
        statistics=statistics,
        num_tokens=num_tokens,
        connected_seconds=connected_seconds,
    )


def request_view(id: str) -> RequestView:
    """A request that is being answered."""
    return RequestView(
        id=RequestId(id),
        state="streaming",
        model=None,
        agent=AgentId("id-a"),
        waited_seconds=0.25,
        age_seconds=1.5,
        num_tokens=7,
        priority=0,
        caller="alice",
    )


def fleet_view(
    *agents: AgentView, requests: tuple[RequestView, ...] = (), queue_depth: int = 0
) -> FleetView:
    """A fleet of these agents whose totals are theirs."""
    return FleetView(
        num_agents=len(agents),
        is_ready=any(agent.slots.total for agent in agents),
        is_draining=False,
        items_ignored=0,
        queue_depth=queue_depth,
        queue_limit=256,
        slots_total=sum(agent.slots.total for agent in agents),
        slots_busy=sum(agent.slots.busy for agent in agents),
        tokens_total=sum(agent.num_tokens for agent in agents),
        num_requests=len(requests),
        agents=agents,
        requests=requests,
    )


def delta_of(
    view: FleetView,
    changed: tuple[AgentView, ...] | None = None,
    left: tuple[AgentId, ...] = (),
) -> FleetDelta:
    """What leads to `view`, where these agents changed (otherwise all) and those left."""
    totals = {field.name: getattr(view, field.name) for field in fields(FleetTotals)}
    return FleetDelta(
        revision=1,
        totals=FleetTotals(**totals),
        agents=view.agents if changed is None else changed,
        agents_left=left,
    )
