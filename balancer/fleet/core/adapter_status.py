"""The status of a desired adapter: its model's status, or its agents' reports once loaded."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ....shared.messages import Issue
from ....shared.models.assignments import DesiredAdapter
from ...control.model_status import ModelStatus, Status
from ..registry import Agent


@dataclass(frozen=True, slots=True)
class AdapterStatus:
    """The status of a desired adapter.

    `left_out`: why no agent serves the adapter and none will soon, although its model is loaded.
    """

    status: ModelStatus
    left_out: Issue | None = None


def status_of_adapter(
    adapter: DesiredAdapter, base: ModelStatus, agents: Iterable[Agent]
) -> AdapterStatus:
    """Return the status of an adapter.

    `base` is the status of its model, and `agents` serve the model.

    An adapter may still come while one of the agents can load it, or has not been ordered to.
    """
    issues = tuple(each for each in base.issues if each.adapter in (None, adapter.name))
    if base.status != "loaded":
        return AdapterStatus(replace(base, issues=issues))
    here = [agent for agent in agents if agent.served == base.model.name]
    having = [agent for agent in here if _has(agent, adapter)]
    steered = [agent for agent in here if agent.work is not None and agent.work.assignment]
    failed = [agent for agent in steered if _has_failed(agent, adapter)]
    bringing = [agent for agent in steered if _is_told(agent, adapter) and agent not in failed]
    reasons = (_issue(agent.issues, adapter.name) for agent in failed)
    reason = next((each for each in reasons if each is not None), None) if base.issues else None
    if having:
        return AdapterStatus(_of(base, "loaded", [*having, *bringing], issues))
    if bringing:
        return AdapterStatus(_of(base, "loading", bringing, issues))
    if reason is None or len(failed) < len(steered):
        return AdapterStatus(_of(base, "waiting", [], issues))
    return AdapterStatus(_of(base, "failed", [], issues or (reason,)), reason)


def _of(
    base: ModelStatus, status: Status, agents: Iterable[Agent], issues: tuple[Issue, ...]
) -> ModelStatus:
    here = list(agents)
    return ModelStatus(
        model=base.model,
        status=status,
        agents=tuple(agent.hello.agent_id for agent in here),
        hosts=tuple(dict.fromkeys(agent.host for agent in here)),
        issues=issues,
    )


def _has(agent: Agent, adapter: DesiredAdapter) -> bool:
    return agent.model is not None and adapter.name in agent.model.adapters


def _is_told(agent: Agent, adapter: DesiredAdapter) -> bool:
    """Return whether the agent's order has the adapter in its desired form."""
    work = agent.work
    if work is None or work.assignment is None:
        return False
    return adapter in (work.assignment.adapters or ())


def _has_failed(agent: Agent, adapter: DesiredAdapter) -> bool:
    is_at_end = agent.work is not None and agent.work.phase == "failed"
    return is_at_end and _is_told(agent, adapter)


def _issue(issues: Iterable[Issue], adapter: str) -> Issue | None:
    """Return the issue about the adapter, or else the first issue."""
    some = list(issues)
    return next((each for each in some if each.adapter == adapter), next(iter(some), None))
