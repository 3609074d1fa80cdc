"""Converts views of the fleet into answers of the management API."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic_core import to_json

from ...shared.inference import RequestId, Waiting, priority_class_of
from ...shared.models import assignments
from ...shared.models.assignments import HOST
from ...shared.reports.figures import Clock
from ...shared.reports.statistics import DeviceKind, DeviceMemory
from ..fleet.device_past import PAST, STEP, DevicePoint, name_of_past
from ..fleet.view import AgentFigures, AgentView, FleetTotals, FleetView, RequestView, ServedView
from .answer_types import (
    Agent,
    AgentDevice,
    Clocks,
    FleetFields,
    ListedRequest,
    MemoryOfModel,
    PastDevice,
    PastDevices,
    Request,
    ServedModel,
    Snapshot,
    ThroughputPoint,
    Trouble,
    Work,
    marked,
)
from .figures import Json, answer_of
from .throughput import Throughput

CLOCKS: Clocks = {
    "agents": sorted(marked(Agent, Clock)),
    "requests": sorted(marked(Request, Clock)),
}

PlaceOf = Callable[[RequestId], int | None]
"""Returns the place of a waiting request; `None` for any other request."""


def agent_json(agent: AgentView, rate: float | None, busy_for_others: int = 0) -> Agent:
    """Return one agent. `rate` is its measured tokens per second.

    `busy_for_others` is the number of slots that other balancers took.
    """
    figures = answer_of(agent, AgentFigures)
    figures["slots"]["busy"] += busy_for_others
    body = {
        "id": agent.id,
        "name": agent.name,
        "labels": agent.labels,
        "version": agent.version,
        "state": agent.state,
        "model": agent.model,
        "models": [_served_json(each) for each in agent.models],
        "issues": agent.issues,
        "download": None if agent.work is None else agent.work.download,
        "work": work_json(agent.work),
        "facts": agent.facts,
        "devices": [*_devices(agent)],
        "throughput": {"tokens_total": agent.num_tokens, "tokens_per_second": _rounded(rate)},
        "statistics": answer_of(agent.statistics) if agent.statistics else None,
        **figures,
    }
    return cast(Agent, body)


def _served_json(served: ServedView) -> ServedModel:
    return {
        "name": served.name,
        "state": served.state,
        "slots": {"total": served.slots.total, "busy": served.slots.busy},
        "tasks": () if served.info is None else tuple(served.info.tasks),
        "memory_needed": served.needed,
        "average_sequences": _rounded(served.average_running),
    }


def _devices(agent: AgentView) -> Iterator[AgentDevice]:
    """Yield the devices as measured by the engine, or as found at the agent's start."""
    measured = agent.statistics.devices if agent.statistics else ()
    for each in measured:
        yield _device(each.name, each.kind, agent, answer_of(each))
    if measured:
        return
    if agent.facts.memory:
        yield _unmeasured(HOST, "cpu", agent.facts.memory, agent)
    for device in agent.facts.devices:
        yield _unmeasured(device.name, "gpu", device.memory, agent)


def _device(name: str, kind: DeviceKind, agent: AgentView, figures: Json) -> AgentDevice:
    body = {"name": name, "kind": kind, "models": _models_on(name, agent), **figures}
    return cast(AgentDevice, body)


def _unmeasured(name: str, kind: DeviceKind, total: int, agent: AgentView) -> AgentDevice:
    figures = answer_of(None, DeviceMemory)
    figures["memory"]["total"] = total
    return _device(name, kind, agent, figures)


def past_devices_json(
    past: Mapping[tuple[str, DeviceKind], Sequence[DevicePoint]], now: float
) -> PastDevices:
    """Return the measured past of devices.

    The time of each point is relative to `now`: 0 or negative seconds. `now` and the returned
    times are in seconds since 1970.
    """
    devices = [
        {
            "name": name,
            "kind": kind,
            "times": [round(now + each.at, 3) for each in points],
            **{
                name_of_past(found): [found.shown(each.values[index]) for each in points]
                for index, found in enumerate(PAST)
            },
        }
        for (name, kind), points in past.items()
    ]
    return {"step": STEP, "devices": cast(list[PastDevice], devices)}


def _models_on(device: str, agent: AgentView) -> list[MemoryOfModel]:
    """Return the memory that each model uses on a device or on the host."""
    return [
        {"name": served.name, "bytes": part.bytes}
        for served in agent.models
        if served.info is not None
        for part in served.info.memory
        if part.device == device
    ]


def work_json(work: assignments.Work | None) -> Work | None:
    """Return an agent's progress with its assigned model; `None` without an assigned model."""
    if work is None or work.assignment is None:
        return None
    return {
        "model": work.assignment.name,
        "phase": work.phase,
        "progress": work.progress,
        "memory_needed": work.needed,
    }


def request_json(
    request: RequestView, position: int | None, balancer: str | None = None
) -> Request:
    """Return one request that has not ended. `position` is its place if it waits.

    `balancer` is the name of this balancer if there are several.
    """
    return {
        "id": request.id,
        "state": request.state,
        "model": request.model,
        "agent": request.agent,
        "waited_seconds": round(request.waited_seconds, 3),
        "age_seconds": round(request.age_seconds, 3),
        "num_tokens": request.num_tokens,
        "priority": request.priority,
        "priority_class": priority_class_of(request.priority),
        "caller": request.caller,
        "moves": request.moves,
        "position": position,
        "balancer": balancer,
    }


def listed_json(
    request: RequestView, waiting: Waiting | None, at: float, balancer: str | None = None
) -> ListedRequest:
    """Return a request in a list, with its expected wait. `at` is the present Unix time."""
    left = None if waiting is None else waiting.seconds_left
    return {
        **request_json(request, None if waiting is None else waiting.position, balancer),
        "for": None if waiting is None else waiting.what,
        "seconds_left": left,
        "expected_start": None if left is None else round(at + left, 3),
    }


def fleet_json(totals: FleetTotals, at: float) -> FleetFields:
    """Return the totals of the fleet."""
    return cast(FleetFields, {"at": round(at, 3), **answer_of(totals)})


def snapshot_json(
    view: FleetView,
    throughput: Throughput,
    at: float,
    place_of: PlaceOf,
    troubles: Sequence[Trouble] = (),
) -> Snapshot:
    """Return the whole view of the fleet, for a page."""
    body = {
        **fleet_json(view, at),
        "clocks": CLOCKS,
        "troubles": list(troubles),
        "agents": [agent_json(agent, throughput.rate_of(agent.id)) for agent in view.agents],
        "requests": [request_json(each, place_of(each.id)) for each in view.requests],
    }
    return cast(Snapshot, body)


def throughput_json(totals: FleetTotals, throughput: Throughput) -> ThroughputPoint:
    """Return one point of the charts."""
    return {
        "seconds": round(throughput.seconds, 3),
        "tokens_per_second": round(throughput.total, 2),
        "agents": {agent: round(rate, 2) for agent, rate in throughput.agents.items()},
        "queue_depth": totals.queue_depth,
        "slots_busy": totals.slots_busy,
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 2)


def dumps(body: Any) -> bytes:
    """Return compact JSON on one line."""
    return to_json(body)
