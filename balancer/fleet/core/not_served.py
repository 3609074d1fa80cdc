"""Explains in words why no agent serves a model now, for clients whose requests wait for it."""

from collections.abc import Iterable
from itertools import islice

from ....shared.inference.adapters import adapted_name
from ....shared.messages import Issue
from ...control.model_status import ModelStatus, share_done
from ..registry import Agent

MAX_NAMES = 3
"""Maximum agents that a reason names."""


def reason_of(model: str | None, status: ModelStatus | None, agents: Iterable[Agent]) -> str:
    """Return the rest of a sentence that says that no agent serves `model`.

    If `model` is `None`, any model counts. `status` is the status of the desired model, if the
    model is desired; for `None`, of the first desired model. `agents` are all connected agents.
    """
    here = list(agents)
    if status is not None and status.model.agents.replicas == 0:
        return f"the desired state says 0 replicas of `{status.model.name}`"
    if not here:
        return "no agent is connected"
    having = [agent for agent in here if _has(agent, model)]
    if having:
        return _of_those(having)
    loading = [agent for agent in here if _loads(agent, model, status)]
    if loading and not (status is not None and status.status == "failed"):
        return _waiting(loading[0], here) or _loading(loading)
    if status is None:
        return _none(model, here)
    if status.issues:
        return _in_words(status.issues[0])
    return "the model waits for an agent that may load it"


def progress_of(agents: Iterable[Agent]) -> str:
    """Return the progress of the first of the loading `agents`, in words; empty if unknown."""
    works = [work for each in agents if (work := each.work) and work.progress is not None]
    work = max(works, key=share_done, default=None)
    if work is None or work.phase not in _PARTS:
        return ""
    return f"{work.progress:.0%} of the {_PARTS[work.phase]} is done"


_PARTS = {"fetching": "download", "loading": "loading"}


def _has(agent: Agent, model: str | None) -> bool:
    """Return whether the agent has the model, even if it takes no requests."""
    if agent.model is None:
        return False
    name = agent.model.name
    return model in (None, name, *(adapted_name(name, each) for each in agent.model.adapters))


def _of_those(having: list[Agent]) -> str:
    """Return why none of the agents that have the model takes the request."""
    failure = next((agent.failure for agent in having if agent.failure is not None), None)
    if failure is not None:
        return _in_words(failure)
    if all(agent.is_cordoned for agent in having):
        return f"{_named(having)} drained (`arriero agents resume NAME`)"
    if not any(agent.takes_work for agent in having):
        return f"{_named(having)} shutting down"
    return f"{_named(having)} not able to serve a feature that the request uses"


def _loads(agent: Agent, model: str | None, status: ModelStatus | None) -> bool:
    """Return whether the agent will soon serve the model."""
    names = {model} if status is None else {model, status.model.name}
    if agent.loading is not None and (model is None or agent.loading.name in names):
        return True
    assignment = None if agent.work is None else agent.work.assignment
    return assignment is not None and (model is None or assignment.name in names)


def _waiting(agent: Agent, here: list[Agent]) -> str | None:
    """Return that the model's file is ready but other models of the host use the memory.

    Returns `None` if that is not the case.
    """
    if agent.work is None or agent.work.phase != "draining":
        return None
    beside = [each for each in here if each.host == agent.host]
    names = sorted({each.served for each in beside if each.served is not None})
    if not names:
        return None
    more = ", …" if len(names) > MAX_NAMES else ""
    models = ", ".join(f"`{name}`" for name in names[:MAX_NAMES]) + more
    return f"agent {agent.name} has no memory for the model while it serves {models}"


def _loading(agents: list[Agent]) -> str:
    issue = next((each for agent in agents for each in agent.issues), None)
    why = "" if issue is None else f" ({issue.message})"
    return f"{_named(agents)} still loading the model{why}"


def _none(model: str | None, here: list[Agent]) -> str:
    if model is not None:
        return "no connected agent serves the model"
    issue = next((each for agent in here for each in agent.issues), None)
    return f"{_named(here)} without a model" if issue is None else _in_words(issue)


def _named(agents: list[Agent]) -> str:
    """Return `agent a is` or `agents a, b are`; for many agents, only the first names."""
    names = sorted({agent.name for agent in agents})
    more = ", …" if len(names) > MAX_NAMES else ""
    shown = ", ".join(islice(names, MAX_NAMES)) + more
    return f"agent {shown} is" if len(names) == 1 else f"agents {shown} are"


def _in_words(issue: Issue) -> str:
    return issue.message + (f"; {issue.hint}" if issue.hint else "")
