"""Exports the present fleet as Prometheus gauges: totals, and the numbers of each agent.

Agents are labelled by name, and agents with the same name are summed. Ids would change with each
restart and leave dead series.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Annotated, get_args

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ....shared.reports.figures import Family, Figure
from ....shared.reports.statistics import DeviceMemory, Statistics
from ...control.model_status import Status
from ...fleet.runtime.outbox import AgentBacklog
from ...fleet.view import AgentFigures, AgentState, AgentView, FleetTotals, FleetView
from .figure_metrics import Reports, figure_metrics

MAX_CODES = 32
"""Maximum codes of issues with a series of their own."""


@dataclass(frozen=True, slots=True)
class EventNumbers:
    """Numbers about events that are held for readers."""

    num_subscribers: Annotated[
        int, Figure(metric=Family("event_subscribers", "Readers of /api/v1/events."))
    ] = 0
    num_bytes: Annotated[
        int,
        Figure(
            metric=Family(
                "event_history_bytes",
                "Events kept for readers that are behind or reconnect, in bytes.",
            )
        ),
    ] = 0
    num_bytes_behind: Annotated[
        int,
        Figure(
            metric=Family(
                "event_bytes_behind",
                "Events that readers have not read yet, in bytes, summed over readers.",
            )
        ),
    ] = 0


class FleetCollector(Collector):
    """Collects the fleet.

    The collector stores nothing, so labels of agents that left are missing in the next scrape.
    """

    def __init__(
        self,
        view: Callable[[], FleetView],
        *,
        backlog: Callable[[], AgentBacklog],
        events: Callable[[], EventNumbers],
        hosts: Callable[[], Mapping[str, int]] = dict,
        desired: Callable[[], Iterable[Status]] = tuple,
    ) -> None:
        """Make a collector. `view` needs no requests.

        `hosts` returns the number of hosts by state. `desired` returns the status of each desired
        model.
        """
        self._desired = desired
        self._view = view
        self._backlog = backlog
        self._events = events
        self._hosts = hosts

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        for each in (self._events(), self._backlog()):
            yield from figure_metrics(type(each), {(): [each]})
        yield from figure_metrics(FleetTotals, {(): [view]})
        yield _hosts(self._hosts())
        yield _desired(Counter(self._desired()))
        yield _by_state(view)
        agents = defaultdict[tuple[str, ...], list[AgentView]](list)
        for agent in view.agents:
            agents[agent.name,].append(agent)
        yield from figure_metrics(AgentFigures, agents, labels=("agent",))
        yield _issues(view)
        yield from engine_metrics(view)


def _desired(numbers: Mapping[Status, int]) -> Metric:
    family = GaugeMetricFamily(
        "arriero_desired_models", "Desired models by their status.", labels=["status"]
    )
    for status in get_args(Status):
        family.add_metric([status], numbers.get(status, 0))
    return family


def _hosts(numbers: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(
        "arriero_hosts",
        "Hosts that the fleet has (here) or had (drained, stopped, lost) and did not forget.",
        labels=["state"],
    )
    for state, number in numbers.items():
        family.add_metric([state], number)
    return family


def _by_state(view: FleetView) -> GaugeMetricFamily:
    family = GaugeMetricFamily("arriero_agents", "Connected agents by state.", labels=["state"])
    counts = Counter(agent.state for agent in view.agents)
    for state in get_args(AgentState):
        family.add_metric([state], counts[state])
    return family


def _issues(view: FleetView) -> GaugeMetricFamily:
    """Return the number of issues by code.

    Agents choose codes, so only the most frequent codes have series of their own.
    """
    family = GaugeMetricFamily(
        "arriero_issues", "Issues of the connected agents, by code.", labels=["code"]
    )
    counts = Counter(issue.code for agent in view.agents for issue in agent.issues)
    named = dict(counts.most_common(MAX_CODES))
    for code, count in named.items():
        family.add_metric([code], count)
    family.add_metric(["other"], counts.total() - sum(named.values()))
    return family


# ---- engines


_ByName = dict[str, list[Statistics]]


def engine_metrics(view: FleetView) -> Iterator[Metric]:
    """Yield the metrics of all agents that have reported statistics."""
    by_name: _ByName = defaultdict(list)
    for agent in view.agents:
        if agent.statistics is not None:
            by_name[agent.name].append(agent.statistics)
    reports: Reports = {(name,): several for name, several in by_name.items()}
    yield from figure_metrics(Statistics, reports, "agent_", ("agent",))
    yield _stalls(by_name)
    yield from _devices(by_name)


def _devices(by_name: _ByName) -> Iterator[Metric]:
    """Yield the metrics of devices.

    Agents with the same name are on one host and measure the same devices.
    """
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
    """Return cumulative counts by upper bound.

    If agents have different versions, the result has the bounds of all versions.
    """
    counts: dict[float, int] = defaultdict(int)
    for said in several:
        for bound, count in zip((*said.stalls.bounds, inf), said.stalls.counts, strict=True):
            counts[bound] += count
    bounds = sorted(counts)
    cumulative = accumulate(counts[bound] for bound in bounds)
    names = [floatToGoString(bound) for bound in bounds]  # type: ignore[no-untyped-call]
    return list(zip(names, cumulative, strict=True))
