"""The fleet as it is now, as Prometheus gauges: running totals, and each agent's own numbers.

Agents are labelled by name, and agents of one name are added up. Ids would change with each restart
and leave dead series behind.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...control.model_status import Status
from ...fleet.runtime.outbox import Backlog
from ...fleet.view import AgentState, FleetView, RoutingView
from .engine_metrics import engine_metrics

MAX_CODES = 32
"""Most codes of issues that have a series of their own."""


@dataclass(frozen=True, slots=True)
class EventNumbers:
    """What is held for the readers of events."""

    num_subscribers: int = 0
    num_bytes: int = 0
    num_bytes_behind: int = 0


class FleetCollector(Collector):
    """Labels of agents that left are gone with the next scrape, since nothing is kept."""

    def __init__(
        self,
        view: Callable[[], FleetView],
        *,
        backlog: Callable[[], Backlog],
        events: Callable[[], EventNumbers],
        hosts: Callable[[], Mapping[str, int]] = dict,
        desired: Callable[[], Iterable[Status]] = tuple,
    ) -> None:
        """`view` needs no requests. `hosts`: how many there are, by state.

        `desired`: the status of each desired model.
        """
        self._desired = desired
        self._view = view
        self._backlog = backlog
        self._events = events
        self._hosts = hosts

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        yield from _events(self._events())
        yield from _backlog(self._backlog())
        yield GaugeMetricFamily(
            "arriero_queue_depth", "Requests that wait for a slot.", value=view.queue_depth
        )
        yield _by_class(view)
        yield GaugeMetricFamily(
            "arriero_queue_callers",
            "Callers of which requests wait that no agent has had yet.",
            value=view.callers_waiting,
        )
        yield GaugeMetricFamily(
            "arriero_queue_limit", "How many requests may wait at most.", value=view.queue_limit
        )
        yield GaugeMetricFamily(
            "arriero_query_parts_waiting",
            "Parts of embeddings, rankings and other queries that no agent has yet.",
            value=view.parts_waiting,
        )
        yield GaugeMetricFamily(
            "arriero_query_parts_asked",
            "Parts of queries that agents are working on.",
            value=view.parts_asked,
        )
        yield GaugeMetricFamily(
            "arriero_draining", "1 while the balancer is shutting down.", value=view.is_draining
        )
        yield GaugeMetricFamily(
            "arriero_kept_tokens",
            "Tokens of answers under way, retained so that another agent can go on with them.",
            value=view.tokens_kept,
        )
        yield CounterMetricFamily(
            "arriero_items_ignored",
            "Ignored items of agents: their request or query had ended, or was with another agent.",
            value=view.items_ignored,
        )
        yield CounterMetricFamily(
            "arriero_bad_messages",
            "Messages of agents that could not be true or handled; each ended a connection.",
            value=view.bad_messages,
        )
        yield _hosts(self._hosts())
        yield _models(view)
        yield _desired(Counter(self._desired()))
        yield _by_state(view)
        yield _slots(view)
        yield _issues(view)
        yield from routing_metrics(view.routing)
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


def _by_class(view: FleetView) -> Metric:
    family = GaugeMetricFamily(
        "arriero_queue_class_depth",
        "Requests that wait for a slot, by priority class.",
        labels=["priority_class"],
    )
    for kind, number in view.waiting_by_class.items():
        family.add_metric([kind], number)
    return family


def _events(numbers: EventNumbers) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "arriero_event_subscribers", "Readers of /api/v1/events.", value=numbers.num_subscribers
    )
    yield GaugeMetricFamily(
        "arriero_event_history_bytes",
        "Events kept for readers that are behind or reconnect, in bytes.",
        value=numbers.num_bytes,
    )
    yield GaugeMetricFamily(
        "arriero_event_bytes_behind",
        "Events that readers have not read yet, in bytes, summed over readers.",
        value=numbers.num_bytes_behind,
    )


def _backlog(backlog: Backlog) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "arriero_agent_messages_waiting",
        "Messages to agents that are not sent completely yet.",
        value=backlog.num_messages,
    )
    yield GaugeMetricFamily(
        "arriero_agent_transfer_bytes",
        "Bytes of large messages that are being sent or received in pieces.",
        value=backlog.num_bytes,
    )


def _models(view: FleetView) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "arriero_models",
        "Known models: here (an agent serves or loads it), or remembered for a while.",
        labels=["state"],
    )
    family.add_metric(["here"], view.num_models - view.num_models_unloaded)
    family.add_metric(["remembered"], view.num_models_unloaded)
    return family


def _by_state(view: FleetView) -> GaugeMetricFamily:
    family = GaugeMetricFamily("arriero_agents", "Connected agents by state.", labels=["state"])
    counts = Counter(agent.state for agent in view.agents)
    for state in get_args(AgentState):
        family.add_metric([state], counts[state])
    return family


def _issues(view: FleetView) -> GaugeMetricFamily:
    """Codes come from agents: the most frequent ones are named."""
    family = GaugeMetricFamily(
        "arriero_issues", "Issues of the connected agents, by code.", labels=["code"]
    )
    counts = Counter(issue.code for agent in view.agents for issue in agent.issues)
    named = dict(counts.most_common(MAX_CODES))
    for code, count in named.items():
        family.add_metric([code], count)
    family.add_metric(["other"], counts.total() - sum(named.values()))
    return family


def _slots(view: FleetView) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "arriero_slots", "Slots of the connected agents.", labels=["agent", "state"]
    )
    total, busy = Counter[str](), Counter[str]()
    for agent in view.agents:
        total[agent.name] += agent.slots.total
        busy[agent.name] += agent.slots.busy
    for name in total:
        family.add_metric([name, "total"], total[name])
        family.add_metric([name, "busy"], busy[name])
    return family


def routing_metrics(view: RoutingView) -> Iterator[Metric]:
    """How agents are chosen: totals since the balancer started."""
    routed = CounterMetricFamily(
        "arriero_routed_requests",
        "Requests that agents were given: warm where the agent was believed to hold at least half "
        "of the prompt in its cache.",
        labels=["prefix"],
    )
    routed.add_metric(["warm"], view.num_warm)
    routed.add_metric(["cold"], view.num_cold)
    yield routed
    waits = CounterMetricFamily(
        "arriero_routing_waits",
        "Requests that waited for the agent that holds their prompt: it served them, or another "
        "did when waiting no longer paid.",
        labels=["outcome"],
    )
    waits.add_metric(["served"], view.num_waited - view.num_gave_up)
    waits.add_metric(["gave_up"], view.num_gave_up)
    yield waits
    yield GaugeMetricFamily(
        "arriero_routing_beliefs",
        "Beginnings of prompts that are remembered, counted for each agent that computed them.",
        value=view.num_beliefs,
    )
    yield CounterMetricFamily(
        "arriero_routing_evictions",
        "Remembered beginnings of prompts that their agents said they do not hold any more.",
        value=view.num_evicted,
    )
    yield CounterMetricFamily(
        "arriero_routing_fetches",
        "Requests whose agents were asked to fetch a prefix from another agent.",
        value=view.num_fetching,
    )
    yield GaugeMetricFamily(
        "arriero_routing_cache_keys",
        "Cache keys of callers for which the agent of their last request is remembered.",
        value=view.num_cache_keys,
    )
