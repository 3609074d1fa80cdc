"""The statistics of the agents' engines, as Prometheus metrics.

As everywhere, agents of one name are added up. An engine that starts again counts from zero, which
is what Prometheus expects of a counter.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from math import inf

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from ....shared.reports.statistics import DeviceMemory, Statistics
from ...fleet.view import FleetView
from .figure_metrics import Reports, figure_metrics

_ByName = dict[str, list[Statistics]]


def engine_metrics(view: FleetView) -> Iterator[Metric]:
    """The metrics of all agents that have said anything of their engines."""
    by_name: _ByName = defaultdict(list)
    for agent in view.agents:
        if agent.statistics is not None:
            by_name[agent.name].append(agent.statistics)
    reports: Reports = {(name,): several for name, several in by_name.items()}
    yield from figure_metrics(Statistics, reports, "agent_", ("agent",))
    yield _stalls(by_name)
    yield from _devices(by_name)


def _devices(by_name: _ByName) -> Iterator[Metric]:
    """Agents of one name are on one host, and measure the same."""
    devices: Reports = {
        (name, each.name): [each]
        for name, several in by_name.items()
        for said in several
        for each in said.devices
    }
    yield from figure_metrics(DeviceMemory, devices, "device_", ("host", "device"))


def _stalls(by_name: _ByName) -> HistogramMetricFamily:
    family = HistogramMetricFamily(
        "arriero_agent_stall_seconds",
        "Pauses of running sequences that were caused by others.",
        labels=["agent"],
    )
    for name, several in by_name.items():
        seconds = sum(said.stalls.seconds for said in several)
        family.add_metric([name], buckets=_buckets(several), sum_value=seconds)
    return family


def _buckets(several: list[Statistics]) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound; with agents of several versions, all of their bounds."""
    counts: dict[float, int] = defaultdict(int)
    for said in several:
        for bound, count in zip((*said.stalls.bounds, inf), said.stalls.counts, strict=True):
            counts[bound] += count
    bounds = sorted(counts)
    cumulative = accumulate(counts[bound] for bound in bounds)
    names = [floatToGoString(bound) for bound in bounds]  # type: ignore[no-untyped-call]
    return list(zip(names, cumulative, strict=True))
