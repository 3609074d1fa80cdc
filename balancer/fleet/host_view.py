"""A host as others see it: one agent for operators, though it is one for each of its models."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from ...shared.reports.statistics import Histogram, Statistics
from .view import AgentState, AgentView, SlotsView

_BEST: Sequence[AgentState] = ("ready", "loading", "failed", "draining", "drained", "idle")
"""States of a host's agents, those that say what the host does before the others."""

_IN_MOTION = ("fetching", "loading", "draining", "failed")

_T = TypeVar("_T")


def host_view(agents: Sequence[AgentView]) -> AgentView:
    """All agents of a host as one, under the host's id; the first of them speaks for it."""
    if len(agents) == 1:
        return agents[0]
    lead = next((each for each in agents if each.model is not None), agents[0])
    works = [each.work for each in agents if each.work is not None]
    work = next((each for each in works if each.phase in _IN_MOTION), lead.work)
    said = [each.statistics for each in agents if each.statistics is not None]
    return replace(
        lead,
        state=min((each.state for each in agents), key=_BEST.index),
        slots=SlotsView(
            total=sum(each.slots.total for each in agents),
            busy=sum(each.slots.busy for each in agents),
        ),
        issues=tuple(dict.fromkeys(issue for each in agents for issue in each.issues)),
        statistics=total_statistics(said) if said else None,
        num_tokens=sum(each.num_tokens for each in agents),
        connected_seconds=max(each.connected_seconds for each in agents),
        work=work,
        models=tuple(model for each in agents for model in each.models),
    )


def total_statistics(said: Sequence[Statistics]) -> Statistics:
    """Sum the statistics of one host's engines, which measure the same devices.

    The number of sequences at once is known for each engine alone.
    """
    if len(said) == 1:
        return said[0]
    devices = {each.name: each for one in said for each in one.devices}
    total = _sum(said, without=("type", "devices", "stalls"))
    stalls = _stalls([one.stalls for one in said])
    return replace(total, devices=tuple(devices.values()), stalls=stalls, average_running=None)


def _stalls(several: Sequence[Histogram]) -> Histogram:
    """The stalls of all engines; an engine without stalls has no buckets."""
    bounds = max((each.bounds for each in several), key=len)
    same = [each for each in several if each.bounds == bounds]
    return Histogram(
        bounds=bounds,
        counts=tuple(map(sum, zip(*(each.counts for each in same), strict=True))),
        seconds=sum(each.seconds for each in same),
    )


def _sum(several: Sequence[_T], without: Iterable[str] = ()) -> _T:
    """Each field added up, where it is known; the first one's in `without`."""
    first = several[0]
    totals: dict[str, object] = {}
    for field in fields(first):  # type: ignore[arg-type]  # dataclasses, all of one type
        known = [value for each in several if (value := getattr(each, field.name)) is not None]
        if field.name in without or not known:
            continue
        totals[field.name] = _sum(known) if is_dataclass(known[0]) else sum(known)
    return replace(first, **totals)  # type: ignore[type-var]
