"""Views of the present fleet. Reading changes nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import TypeVar

from ....shared.inference import (
    PRIORITY_CLASSES,
    AgentId,
    GenerateRequest,
    RequestId,
    Waiting,
)
from ....shared.reports.model_info import Task
from ....shared.reports.statistics import DeviceKind, Histogram, Statistics
from ...control.agent_plan import Plan
from ...control.desired_state import DesiredState
from ...control.model_status import ModelStatus
from ..caller import ANONYMOUS, Caller
from ..device_past import DevicePoint
from ..lifecycle import Lifecycle
from ..limits import Limits
from ..requests.eligibility import Engine
from ..requests.request import Request
from ..view import (
    AgentState,
    AgentView,
    Cordon,
    Departure,
    FleetDelta,
    FleetTotals,
    FleetView,
    ForegroundView,
    ModelView,
    RequestView,
    SlotsView,
    Standing,
)
from .fleet import Fleet


class FleetViews:
    """Makes views of the core on request; each method states its cost."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        """Make the views. `clock` gives the seconds of the core's clock."""
        self._fleet = fleet
        self._state = fleet.state
        self._steering = fleet.steering
        self._admission = fleet.admission
        self._clock = clock

    @property
    def limits(self) -> Limits:
        """Bounds of waiting requests, and time limits."""
        return self._state.limits

    @property
    def revision(self) -> int:
        """A number that grows with every visible change, except the mere passing of time."""
        return self._fleet.revision

    # ---- callers

    @property
    def num_limited_callers(self) -> int:
        """The number of callers whose limits are counted."""
        return self._admission.num_accounts

    def standing(self, caller: Caller) -> Standing:
        """Return how much of the caller's limits is left."""
        return self._admission.standing(caller, self._clock())

    def priority(self, request: GenerateRequest, caller: Caller) -> int | None:
        """Return the priority that a request of `caller` gets; `None` if none is set."""
        return self._admission.priority(request, caller)

    # ---- the fleet

    def totals(self) -> FleetTotals:
        """Return the fleet in a few numbers, at a constant cost."""
        state = self._state
        dispatch = state.requests.dispatch
        return FleetTotals(
            num_agents=state.registry.num_agents,
            is_ready=dispatch.is_ready or state.dispatcher.is_ready,
            is_draining=state.is_draining,
            queue_depth=dispatch.num_waiting,
            waiting_by_class={kind: dispatch.num_waiting_of(kind) for kind in PRIORITY_CLASSES},
            callers_waiting=dispatch.num_callers,
            queue_limit=state.limits.max_buffered_requests,
            slots_total=dispatch.num_slots,
            slots_busy=dispatch.num_running,
            tokens_total=state.tokens_total,
            items_ignored=state.items_ignored,
            bad_messages=state.bad_messages.total,
            tokens_kept=state.requests.tokens_kept,
            parts_waiting=state.dispatcher.num_pending,
            parts_asked=state.dispatcher.num_asked,
            num_requests=len(state.lives),
            num_models=len(state.models),
            num_models_unloaded=state.models.num_remembered,
            routing=dispatch.router.view,
            moves_total=state.requests.num_moves,
        )

    def view(self, max_requests: int | None = None) -> FleetView:
        """Return the totals, all agents, and the oldest requests, at a cost of their number."""
        now, totals = self._clock(), self.totals()
        return FleetView(
            agents=tuple(self._host_view(host, now) for host in self._state.registry.hosts()),
            requests=tuple(islice(self.requests(), max_requests)),
            **{field.name: getattr(totals, field.name) for field in fields(totals)},
        )

    def changes_since(self, revision: int) -> FleetDelta | None:
        """Return the changes after `revision`.

        Returns `None` if the revision is too old; then take a `view`.
        """
        changes = self._state.changes.since(revision)
        if changes is None:
            return None
        now = self._clock()
        return FleetDelta(
            revision=self.revision,
            totals=self.totals(),
            agents=tuple(self._host_view(host, now) for host in changes.changed),
            agents_left=changes.gone,
        )

    def tokens_since(self, revision: int) -> list[tuple[AgentId, int]]:
        """Return the agents that sent tokens after `revision`, and their totals."""
        registry = self._state.registry
        generated = self._state.changes.generated_since(revision)
        return [(id, sum(each.num_tokens for each in registry.on_host(id))) for id in generated]

    def num_called(self, name: str) -> int:
        """Return the number of hosts with agents of this name."""
        return len({each.host for each in self._state.registry.current() if each.name == name})

    # ---- models

    def models(self, caller: Caller = ANONYMOUS) -> tuple[ModelView, ...]:
        """Return every known model that the caller may use, by name."""
        names = self._admission.models_of(caller)
        views = self._state.models.views()
        return tuple(self._steered(each) for each in views if not names or each.info.name in names)

    def model(self, name: str, caller: Caller = ANONYMOUS) -> ModelView | None:
        """Return the known model of this name or alias, if the caller may use it."""
        name = self._state.models.resolve(name) or name
        names = self._admission.models_of(caller)
        view = self._state.models.get(name) if not names or name in names else None
        return None if view is None else self._steered(view)

    def _steered(self, view: ModelView) -> ModelView:
        """Return the model's view with the controller's knowledge of the model."""
        status = self._steering.status_of(view.info.name)
        if status is None:
            return view
        is_loaded = view.status == "loaded"
        return replace(
            view,
            status=view.status if is_loaded else status.status,
            progress=None if is_loaded else self._steering.progress(view.info.name),
            issues=status.issues,
        )

    def num_slots_for(self, model: str | None) -> int:
        """Return the number of slots of agents that take requests for a model.

        If `model` is `None`, all models count.
        """
        name = None if model is None else self._state.models.resolve(model) or model
        return self._state.requests.dispatch.num_slots_for(name)

    def foreground(self, model: str | None) -> ForegroundView:
        """Return the requests above the class `batch` that could go to the agents of a model."""
        name = None if model is None else self._state.models.resolve(model) or model
        return self._state.requests.foreground.view(name, self._clock())

    def model_name_for(self, task: Task | None, caller: Caller = ANONYMOUS) -> str:
        """Return the model name for answers to requests without one.

        The name is empty if no model can do `task`.
        """
        names = self._admission.models_of(caller)
        return min(names) if names else self._state.models.name_for(task)

    @property
    def outbid(self) -> int | None:
        """Return an epoch known to agents that is later than this balancer's, if any."""
        return self._steering.outbid

    def waiting_by_model(self) -> Mapping[str, tuple[int, float]]:
        """Return, by model, how many requests and queries wait, and for how many seconds.

        The seconds are those of the oldest. Requests without a model name count for the first
        desired model.
        """
        now, demands = self._clock(), self._steering.own_demands()
        return {name: (each.num_waiting, now - each.since) for name, each in demands.items()}

    def statuses(self) -> Mapping[str, ModelStatus]:
        """Return the status of each desired model."""
        return self._steering.statuses

    def adapters(self) -> Mapping[str, ModelStatus]:
        """Return the status of each desired adapter, by the name in requests."""
        return self._steering.adapters

    def placement_of(self, model: str) -> str | None:
        """Return a desired model's placement and its reasons, in words.

        Costs the size of the fleet.
        """
        return self._steering.placement_of(model)

    def dry_run(self, desired: DesiredState) -> Plan:
        """Return the steps that this desired state would cause. Costs the size of the fleet."""
        return self._steering.dry_run(desired, self._clock())

    # ---- requests

    def requests(self) -> Iterator[RequestView]:
        """Yield requests and queries that have not ended, oldest first; each costs when read."""
        now = self._clock()
        return (self._view(each, now) for each in self._state.lives)

    def request(self, id: RequestId) -> RequestView | None:
        """Return a request or query, if it has not ended."""
        life = self._state.lives.get(id)
        return None if life is None else self._view(life, self._clock())

    def _view(self, life: Lifecycle, now: float) -> RequestView:
        link = life.link if isinstance(life, Request) else None
        return life.view(None if link is None else self._state.registry[link].host, now)

    def _request(self, id: RequestId) -> Request | None:
        request = self._state.lives.get(id)
        return request if isinstance(request, Request) else None

    def position(self, id: RequestId) -> int | None:
        """Return the place of a request that waits for an agent, from 1.

        Returns `None` for any other request.
        """
        request = self._request(id)
        if request is None or request.link is not None:
            return None
        return self._state.requests.dispatch.place_of(request)

    def engine_of(self, id: RequestId) -> Engine | None:
        """Return the agents that can continue the answer of a running request, if known."""
        request = self._request(id)
        return None if request is None else request.engine

    def waiting(self, id: RequestId) -> Waiting | None:
        """Return the expected wait of a request without an agent; `None` for any other request."""
        request = self._request(id)
        if request is None or request.link is not None:
            return None
        now = self._clock()
        return self._state.requests.waiting_room.of(
            request, lambda model: self._steering.not_served(model, now)
        )

    # ---- agents

    def agent(self, id: AgentId) -> AgentView | None:
        """Return a connected agent, with its whole host; `None` if it is not connected."""
        agent = self._state.registry.find(id)
        return None if agent is None else self._host_view(agent.host, self._clock())

    def device_past(self, id: AgentId) -> dict[tuple[str, DeviceKind], list[DevicePoint]]:
        """Return the last minutes of the devices of an agent's host.

        `at` is in seconds, 0 or less.
        """
        agent = self._state.registry.find(id)
        if agent is None:
            return {}
        now = self._clock()
        found = self._state.device_past.of(agent.host, now)
        return {
            key: [replace(point, at=point.at - now) for point in points]
            for key, points in found.items()
        }

    def departure_of(self, id: AgentId) -> Departure | None:
        """Return why an agent left, if it left a short while ago."""
        return self._state.registry.departure_of(id)

    def cordon_of(self, id: AgentId) -> Cordon | None:
        """Return the cordon of an agent that gets no new requests."""
        agent = self._state.registry.find(id)
        return self._steering.cordons.get(id if agent is None else agent.host)

    def slots_taken(self) -> dict[AgentId, int]:
        """Return the number of slots that this balancer has taken, by agent."""
        taken: Counter[AgentId] = Counter()
        for agent in self._state.registry.current():
            taken[agent.host] += self._state.num_busy_on(agent)
        return {id: num for id, num in taken.items() if num}

    def _host_view(self, host: AgentId, now: float) -> AgentView:
        agents = self._state.registry.on_host(host)
        return host_view([each.view(self._state.num_busy_on(each), now) for each in agents])


_BEST: Sequence[AgentState] = ("ready", "loading", "failed", "draining", "drained", "idle")
"""States of a host's agents, ordered by how much they say about the host."""

_IN_MOTION = ("fetching", "loading", "draining", "failed")

_T = TypeVar("_T")


def host_view(agents: Sequence[AgentView]) -> AgentView:
    """Return all agents of a host as one, under the host's id, with the first agent's facts."""
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
    """Add up the statistics of one host's engines, which measure the same devices.

    The number of sequences at once is known only for each engine.
    """
    if len(said) == 1:
        return said[0]
    devices = {each.name: each for one in said for each in one.devices}
    total = _sum(said, without=("type", "devices", "stalls"))
    stalls = _stalls([one.stalls for one in said])
    return replace(total, devices=tuple(devices.values()), stalls=stalls, average_running=None)


def _stalls(several: Sequence[Histogram]) -> Histogram:
    """Return the stalls of all engines; an engine without stalls has no buckets."""
    bounds = max((each.bounds for each in several), key=len)
    same = [each for each in several if each.bounds == bounds]
    return Histogram(
        bounds=bounds,
        counts=tuple(map(sum, zip(*(each.counts for each in same), strict=True))),
        seconds=sum(each.seconds for each in same),
    )


def _sum(several: Sequence[_T], without: Iterable[str] = ()) -> _T:
    """Add up each field over its known values; fields in `without` are the first one's."""
    first = several[0]
    totals: dict[str, object] = {}
    for field in fields(first):  # type: ignore[arg-type]  # dataclasses, all of one type
        known = [value for each in several if (value := getattr(each, field.name)) is not None]
        if field.name in without or not known:
            continue
        totals[field.name] = _sum(known) if is_dataclass(known[0]) else sum(known)
    return replace(first, **totals)  # type: ignore[type-var]
