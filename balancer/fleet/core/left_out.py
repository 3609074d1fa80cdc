"""Which wished adapters no agent of their model has, although all have done what they could."""

from collections.abc import Iterable, Mapping

from ....shared.messages import Issue
from ....shared.models.assignments import WishedAdapter
from ...control.model_status import ModelStatus
from ..registry import Agent


def left_out(status: ModelStatus, agents: Iterable[Agent]) -> Mapping[str, Issue]:
    """Why each adapter of a model is not served and will not be soon, by its own name.

    `agents` are those of the model. Nobody is waited for who has it, may yet bring it, or was not
    told of it.
    """
    if status.status != "loaded" or not status.issues:
        return {}
    here = [agent for agent in agents if agent.served == status.model.name]
    found = ((each.name, _reason(each, here)) for each in status.model.adapters)
    return {name: issue for name, issue in found if issue is not None}


def _reason(adapter: WishedAdapter, agents: Iterable[Agent]) -> Issue | None:
    reason: Issue | None = None
    for agent in agents:
        if agent.model is not None and adapter.name in agent.model.adapters:
            return None
        work = agent.work
        if work is None or work.assignment is None:
            continue  # a model of its own, with the adapters that it has
        if work.phase != "failed" or adapter not in (work.assignment.adapters or ()):
            return None
        reason = reason or _issue(agent.issues, adapter.name)
    return reason


def _issue(issues: Iterable[Issue], adapter: str) -> Issue | None:
    """The issue that is about the adapter, or the first one."""
    some = list(issues)
    return next((each for each in some if each.adapter == adapter), next(iter(some), None))
