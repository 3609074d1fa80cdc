"""The statistics of the agents' engines, as Prometheus metrics.

As everywhere, agents of one name are added up. An engine that starts again counts from zero, which
is what Prometheus expects of a counter.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from math import inf

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from ....shared.reports.statistics import Statistics
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
    memory = GaugeMetricFamily(
        "arriero_device_memory_bytes",
        "Memory of the hosts (device CPU) and of their GPUs, as agents measured it.",
        labels=["host", "device", "kind"],
    )
    use = GaugeMetricFamily(
        "arriero_device_use_ratio",
        "The share of their time that hosts' processors (device CPU) and GPUs were used.",
        labels=["host", "device"],
    )
    temperature = GaugeMetricFamily(
        "arriero_device_temperature_celsius",
        "The hottest sensor of hosts' processors (device CPU) and of their GPUs.",
        labels=["host", "device"],
    )
    for name, several in by_name.items():
        devices = {each.name: each for said in several for each in said.devices}
        for each in devices.values():
            memory.add_metric([name, each.name, "total"], each.total)
            memory.add_metric([name, each.name, "free"], each.free)
            memory.add_metric([name, each.name, "used"], each.total - each.free)
            if each.others is not None:
                memory.add_metric([name, each.name, "others"], each.others)
            if each.use is not None:
                use.add_metric([name, each.name], each.use)
            if each.temperature is not None:
                temperature.add_metric([name, each.name], each.temperature)
    yield from (memory, use, temperature)


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
