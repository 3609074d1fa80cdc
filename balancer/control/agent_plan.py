"""A dry run of a desired state: what each agent would do, and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from ...shared.inference import AgentId
from ...shared.messages import Issue
from ...shared.models.assignments import Assignment
from .members import Member
from .rollout import is_live

Action = Literal["keep", "reload", "load", "unload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """The step of one agent. `model` is the model that it would then serve."""

    agent: AgentId
    name: str
    action: Action
    model: str | None
    why: str

    @property
    def is_idle(self) -> bool:
        """Return whether the agent has no model and is given none."""
        return self.action == "keep" and self.model is None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of all agents, and, by model, why the model would lack agents."""

    agents: Sequence[AgentPlan]
    shortages: Mapping[str, Issue]


def plans_of(
    members: Iterable[Member], targets: Mapping[AgentId, Assignment | None]
) -> list[AgentPlan]:
    """Return the step of each agent, but of at most one agent without a model per host."""
    plans = [plan_of(member, targets.get(member.id)) for member in members]
    busy = {plan.agent for plan in plans if not plan.is_idle}
    idle = {plan.agent: plan for plan in reversed(plans) if plan.agent not in busy}
    return [plan for plan in plans if not plan.is_idle or plan is idle.get(plan.agent)]


def plan_of(member: Member, target: Assignment | None) -> AgentPlan:
    """Return the agent's step to serve `target`."""
    action, why = _action(member, target)
    serves = member.report.serves or (None if member.assigned is None else member.assigned.name)
    is_free = member.report.is_steered
    return AgentPlan(
        agent=member.report.host_id,
        name=member.report.name,
        action=action,
        model=serves if not is_free else None if target is None else target.name,
        why=why,
    )


def _action(member: Member, target: Assignment | None) -> tuple[Action, str]:
    assigned = member.assigned
    if member.report.facts.is_pinned:
        return "keep", "the agent was started with --model or --upstream"
    if member.report.is_cordoned:
        return "keep", "the agent is drained, so it gets no model until it is resumed"
    if assigned == target:
        return (
            "keep",
            "no desired model needs the agent"
            if assigned is None
            else (f"the agent already serves {assigned.name}"),
        )
    if target is None:
        name = "the model" if assigned is None else assigned.name
        return "unload", f"{name} is no longer desired on the agent"
    if assigned is None:
        return "load", f"the agent has room for {target.name}"
    if is_live(member, target):
        return "keep", f"{_changed(assigned, target)} changes without a reload"
    if assigned.name != target.name:
        return "reload", f"{target.name} replaces {assigned.name}"
    return "reload", f"{_changed(assigned, target)} of {target.name} changes, which needs a reload"


def _changed(old: Assignment, new: Assignment) -> str:
    names = [each.name for each in fields(Assignment)]
    return ", ".join(name for name in names if getattr(old, name) != getattr(new, name))
