"""Keeps the measurements of each host's devices from the last ten minutes.

Invariants: a device has at most `NUM_STEPS` points in different steps of `STEP` seconds; a host
has at most `MAX_DEVICES` devices. A host that left is forgotten after `RETURNED` seconds, so that
a host that loads another model keeps its points.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan, nan

from ...shared.inference import AgentId
from ...shared.reports.figures import FoundFigure, figures_of
from ...shared.reports.statistics import DeviceKind, DeviceMemory
from .registry import RETURNED

STEP = 5.0
"""The seconds of a step, and the interval at which agents measure."""

NUM_STEPS = 120
"""The number of steps in ten minutes."""

MAX_DEVICES = 17
"""The maximum devices of a host: the host itself and 16 GPUs. Further devices are ignored."""

PAST = tuple(found for found in figures_of(DeviceMemory) if found.figure.line is not None)
"""The figures that are kept, which are the figures with a chart on the page."""


def name_of_past(found: FoundFigure) -> str:
    """Return the name of the list of a figure's points in answers."""
    return found.figure.name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class DevicePoint:
    """The values of all figures in `PAST` in the step that began at `at`."""

    at: float
    values: tuple[float | None, ...]


class DevicePast:
    """The measurements of all hosts. Times are in seconds of the core's clock."""

    def __init__(self) -> None:
        self._hosts: dict[AgentId, dict[tuple[str, DeviceKind], _Ring]] = {}
        self._gone: dict[AgentId, float] = {}

    @property
    def num_hosts(self) -> int:
        """The number of hosts with points."""
        return len(self._hosts)

    def measured(self, host: AgentId, devices: Iterable[DeviceMemory], now: float) -> None:
        """Record a report of a host's devices by one of its agents."""
        self._forget(now)
        rings = self._hosts.setdefault(host, {})
        for each in devices:
            key = (each.name, each.kind)
            if key in rings or len(rings) < MAX_DEVICES:
                rings.setdefault(key, _Ring()).put(now - now % STEP, each)

    def joined(self, host: AgentId) -> None:
        """Note that an agent of the host has joined."""
        self._gone.pop(host, None)

    def left(self, host: AgentId, now: float) -> None:
        """Note that the last agent of the host has left."""
        self._forget(now)
        if host in self._hosts:
            self._gone.setdefault(host, now)

    def of(self, host: AgentId, now: float) -> dict[tuple[str, DeviceKind], list[DevicePoint]]:
        """Return the points of each device by its name and kind, oldest first."""
        since = now - NUM_STEPS * STEP
        found = {key: ring.since(since) for key, ring in self._hosts.get(host, {}).items()}
        return {key: points for key, points in found.items() if points}

    def _forget(self, now: float) -> None:
        over = [host for host, at in self._gone.items() if now > at + RETURNED]
        for host in over:
            del self._gone[host]
            del self._hosts[host]


_WIDTH = 1 + len(PAST)


class _Ring:
    """A ring buffer of points, which takes 4 KB for three figures."""

    def __init__(self) -> None:
        self._values = array("d")

    def put(self, at: float, device: DeviceMemory) -> None:
        """Add a point, or replace the point of the same step."""
        values = self._values
        if values and values[-_WIDTH] >= at:
            del values[-_WIDTH:]
        values.append(at)
        values.extend(nan if (value := found.of(device)) is None else value for found in PAST)
        if len(values) > NUM_STEPS * _WIDTH:
            del values[:_WIDTH]

    def since(self, at: float) -> list[DevicePoint]:
        values = self._values
        points = (values[start : start + _WIDTH] for start in range(0, len(values), _WIDTH))
        return [
            DevicePoint(time, tuple(map(_known, known))) for time, *known in points if time > at
        ]


def _known(value: float) -> float | None:
    return None if isnan(value) else value
