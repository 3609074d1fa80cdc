"""Runs the controller in the core: when it reconciles the fleet, and with which data.

Reconciling costs the size of the fleet. It therefore runs a short moment after a change, once for
all changes in that time. Operators' cordons are carried out here, too.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ....shared.errors import ShuttingDown
from ....shared.inference import AgentId
from ....shared.inference.adapters import adapted_name
from ....shared.inference.values import MOST_SECONDS, within
from ....shared.messages import Issue, Status
from ....shared.models.assignments import Phase, Reload, Work
from ...control.agent_plan import Plan
from ...control.controller import Controller
from ...control.demand import Demand
from ...control.desired_state import DesiredState
from ...control.members import AgentReport
from ...control.model_status import ModelStatus, share_done
from ..deadlines import earliest
from ..decisions import Decision, LinkId
from ..lifecycle import NotServed
from ..model_registry import LoadFailure
from ..priority_queue import PriorityQueue
from ..registry import Agent
from ..view import Cordon, SharedCordon
from .adapter_status import status_of_adapter
from .not_served import progress_of, reason_of
from .state import FleetState

MAX_CORDONS = 4096
"""Maximum cordons that are remembered; the oldest is forgotten first."""


class Cordons:
    """The cordons, by the present or last ids of agents that operators want to rest.

    An agent with a cordon gets no new requests until operators resume it. An agent draws a new id
    when it starts, but keeps its name. When a cordoned agent restarts, its cordon moves to the new
    id, so a drained host stays drained. Of several agents with one name, the cordon applies to one
    at a time.

    Invariants: at most `MAX_CORDONS` cordons are remembered, including cordons of absent agents; a
    deadline belongs to a cordoned agent.
    """

    def __init__(self) -> None:
        self._cordons: OrderedDict[AgentId, Cordon] = OrderedDict()
        self._deadlines: PriorityQueue[AgentId, float] = PriorityQueue()

    def __len__(self) -> int:
        return len(self._cordons)

    def get(self, id: AgentId) -> Cordon | None:
        """Return the cordon of an agent."""
        return self._cordons.get(id)

    def restored(self, cordons: Iterable[Cordon]) -> None:
        """Restore the cordons from before the balancer's start, oldest first."""
        for cordon in cordons:
            self.keep(cordon.first, cordon)

    def meet(self, deadlines: Mapping[AgentId, float | None]) -> None:
        """Set the `deadlines` of cordons by the first ids of their agents.

        All other cordons keep their deadlines.
        """
        for id, cordon in self._cordons.items():
            if cordon.first in deadlines:
                self._set_deadline(id, deadlines[cordon.first])

    def without(self, desired: Container[AgentId]) -> list[AgentId]:
        """Return the agents whose cordon is not in `desired`."""
        return [id for id, cordon in self._cordons.items() if cordon.first not in desired]

    def missing(self, desired: Iterable[Cordon]) -> list[Cordon]:
        """Return the cordons in `desired` that are unknown."""
        known = {cordon.first for cordon in self._cordons.values()}
        return [cordon for cordon in desired if cordon.first not in known]

    def add(self, id: AgentId, name: str, deadline: float | None) -> None:
        """Give an agent no new requests; requests that still run at `deadline` move then."""
        known = self._cordons.get(id)
        self.remove(id)
        self.keep(id, known or Cordon(id, name))
        self._set_deadline(id, deadline)

    def _set_deadline(self, id: AgentId, deadline: float | None) -> None:
        if deadline is not None:
            self._deadlines.set(id, deadline)
        elif id in self._deadlines:
            self._deadlines.remove(id)

    def remove(self, id: AgentId) -> None:
        """Let the agent get requests again. Returns whether it was cordoned."""
        self._cordons.pop(id, None)
        self._set_deadline(id, None)

    def joined(self, id: AgentId, name: str, is_here: Callable[[AgentId], bool]) -> bool:
        """Return whether the joining agent is cordoned, perhaps under a former id."""
        if id in self._cordons:
            return True
        for old, cordon in self._cordons.items():
            if cordon.name == name and not is_here(old):
                self.remove(old)
                self.keep(id, cordon)
                return True
        return False

    def next_deadline(self) -> float | None:
        """Return when requests of a cordoned agent have to move."""
        first = self._deadlines.first()
        return None if first is None else first[0]

    def due(self, now: float) -> list[AgentId]:
        """Return the agents whose requests have to move now."""
        return self._deadlines.pop_until(now)

    def keep(self, id: AgentId, cordon: Cordon) -> None:
        """Assign the cordon to the agent with this id from now on."""
        self._cordons[id] = cordon
        while len(self._cordons) > MAX_CORDONS:
            self.remove(next(iter(self._cordons)))

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        if len(self._cordons) > MAX_CORDONS or set(self._deadlines) - self._cordons.keys():
            raise RuntimeError("too many cordons, or a deadline without one")


LEAST_SHARE = 0.02
"""The share of a phase that has to be complete before its remaining time is estimated."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """An agent's progress at the moment when its present phase was first seen."""

    revision: int
    phase: Phase
    at: float
    progress: float


class LoadTimes:
    """Estimates the remaining time of each load from the progress in its present phase.

    `reported` must be called with every report of an agent. Invariant: a mark belongs to a
    connected agent that fetches or loads.
    """

    def __init__(self) -> None:
        self._marks: dict[LinkId, _Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def reported(self, link: LinkId, work: Work | None, now: float) -> None:
        """Record an agent's progress."""
        if work is None or work.phase not in ("fetching", "loading"):
            self.left(link)
            return
        mark = self._marks.get(link)
        if mark is None or (mark.revision, mark.phase) != (work.revision, work.phase):
            self._marks[link] = _Mark(work.revision, work.phase, now, work.progress or 0.0)

    def left(self, link: LinkId) -> None:
        """Forget an agent that left."""
        self._marks.pop(link, None)

    def seconds_left(self, link: LinkId, work: Work | None, now: float) -> float | None:
        """Return the seconds until the phase ends; `None` if unknown.

        While an agent fetches, the time to load the model is unknown and not included.
        """
        mark = self._marks.get(link)
        if mark is None or work is None:
            return None
        if work.download is not None and work.download.seconds_left is not None:
            return within(work.download.seconds_left, 0.0, MOST_SECONDS)
        done, elapsed = (work.progress or 0.0) - mark.progress, now - mark.at
        if not (done >= LEAST_SHARE and elapsed > 0):
            return None
        return within(elapsed * (1 - (work.progress or 0.0)) / done, 0.0, MOST_SECONDS)


RECONCILE_PAUSE = 0.05
"""Minimum seconds from a change to the reconciliation after it."""

RECONCILE_PAUSE_PER_AGENT = 1e-4
"""Additional seconds for each agent, since reconciling takes some 20 µs for each agent.

So reconciling takes a sixth of the time at most, however often the fleet changes.
"""


UNSCHEDULED = 5.0
"""Seconds for which requests are refused for a model that failed to load.

This applies if no agent is free to try again although requests wait for the model.
"""


class Steering:
    """Runs the controller.

    Every method that changes the fleet returns decisions, to be carried out in order.
    """

    def __init__(self, state: FleetState) -> None:
        self._state = state
        # No request lives longer, so a change of the desired state cuts none of them.
        self._controller = Controller(
            drain_timeout=state.limits.request_timeout, http_hosts=state.limits.http_hosts
        )
        self.cordons = Cordons()
        self._reconcile_at: float | None = None
        self._load_times = LoadTimes()
        self._peer_demands: Mapping[str, Demand] = {}
        self._bases: Mapping[str, str] = {}
        self.adapters: Mapping[str, ModelStatus] = {}
        """The status of each desired adapter at the last check, by its name in requests."""
        self._left_out: Mapping[str, Issue] = {}
        self._failures: Mapping[str, LoadFailure] = {}

    @property
    def desired(self) -> DesiredState | None:
        """The desired state; `None` if no operator has set one."""
        return self._controller.desired

    @property
    def statuses(self) -> Mapping[str, ModelStatus]:
        """The status of each desired model."""
        return self._controller.statuses

    def placement_of(self, name: str) -> str | None:
        """Return a desired model's placement and its reasons, in words, if it is to be loaded."""
        status = self.statuses.get(name)
        return None if status is None else self._controller.placement_of(status.model)

    def status_of(self, name: str) -> ModelStatus | None:
        """Return the status of a desired model or adapter."""
        return self.statuses.get(name) or self.adapters.get(name)

    # ---- how far agents are

    def reported(self, agent: Agent, now: float) -> None:
        """Take a report of an agent that joined or changed."""
        self._load_times.reported(agent.link, agent.work, now)

    def left(self, agent: Agent) -> None:
        """Forget an agent that left."""
        self._load_times.left(agent.link)

    def progress(self, model: str) -> float | None:
        """Return the share of a model's loading that is done; `None` if it is not loading."""
        status = self.status_of(model)
        if status is None or status.status != "loading":
            return None
        shares = [share_done(agent.work) for agent in self._loading(status) if agent.work]
        return max(shares, default=status.progress)

    def not_served(self, model: str | None, now: float) -> NotServed:
        """Return why no agent serves `model`, and when the first agent will have loaded it."""
        status = self.status_of(self._first_model if model is None else model)
        reason = reason_of(model, status, self._state.registry.current())
        loading = [] if status is None else self._loading(status)
        times = [self._load_times.seconds_left(each.link, each.work, now) for each in loading]
        seconds_left = min((time for time in times if time is not None), default=None)
        is_loading = status is not None and status.status == "loading"
        return NotServed(reason, seconds_left, progress_of(loading) if is_loading else "")

    def _agents_of(self, status: ModelStatus) -> list[Agent]:
        """Return the connected agents that have a model or will have it soon."""
        registry = self._state.registry
        links = [link for id in status.agents if (link := registry.link_of(id)) is not None]
        return [registry[link] for link in links]

    def _loading(self, status: ModelStatus) -> list[Agent]:
        """Return the connected agents that will soon serve a model."""
        return [
            agent
            for agent in self._agents_of(status)
            if agent.work is not None
            and agent.work.assignment is not None
            and agent.work.assignment.name == status.model.name
        ]

    @property
    def _first_model(self) -> str:
        """Return the name of the model that is loaded for requests without a model name."""
        desired = self._controller.desired
        return desired.models[0].name if desired is not None and desired.models else ""

    # ---- what makes a reconciliation necessary

    def desire(self, desired: DesiredState, now: float) -> None:
        """Take the state that an operator wants."""
        self._controller.desire(desired)
        self._learn(desired, now)

    def restored(self, desired: DesiredState, now: float) -> None:
        """Take the state that was desired before the balancer started."""
        self._controller.restored(desired, now)
        self._learn(desired, now)

    def _learn(self, desired: DesiredState, now: float) -> None:
        self._bases = {each: model.name for model in desired.models for each in model.adapted_names}
        names = {model.name: model.aliases for model in desired.models}
        self._state.models.desire(names | dict.fromkeys(self._bases, ()), now)
        self._left_out, self._failures = {}, {}
        self._state.models.leave_out({})
        self._state.models.fail({})
        self._look_at_adapters()
        self._state.changes.advance()
        self.look_soon(now)

    def look_soon(self, now: float) -> None:
        """Note a change that may need an order."""
        if self._controller.desired is not None and self._reconcile_at is None:
            num_agents = self._state.registry.num_agents
            self._reconcile_at = now + max(RECONCILE_PAUSE, num_agents * RECONCILE_PAUSE_PER_AGENT)

    def demand_changed(self, model: str | None, now: float) -> None:
        """Note a request for a model that may have no agent, or its end before an agent had it."""
        if self._controller.desired is None:
            return
        if model is None:
            if not self._state.requests.dispatch.is_ready:
                self.look_soon(now)
        elif (view := self._state.models.get(model)) is None or view.status != "loaded":
            self.look_soon(now)

    # ---- other balancers over the same store

    @property
    def outbid(self) -> int | None:
        """Return an epoch known to agents that is later than this balancer's, if any."""
        return self._controller.outbid

    def lead(self, epoch: int, now: float) -> None:
        """Give agents orders from now on."""
        self._controller.lead(epoch)
        self.look_soon(now)

    def follow(self) -> None:
        """Give no more orders, because another balancer leads, or none."""
        self._controller.follow()
        self._peer_demands = {}

    def others_wait(self, demands: Mapping[str, Demand], now: float) -> None:
        """Take the models for which requests at other balancers wait."""
        if demands or self._peer_demands:
            self._peer_demands = demands
            self.look_soon(now)

    def retry(self, agent: Agent, now: float) -> None:
        """Let an agent try again to load models: an operator at another balancer wants it."""
        self._controller.retry(agent.host, now)
        self.look_soon(now)

    def own_demands(self) -> Mapping[str, Demand]:
        """Return the models for which requests and queries of this balancer wait."""
        return self._added_up(self._waiting())

    # ---- operators

    def apply_cordons(self, shared: Collection[SharedCordon], now: float) -> list[Decision]:
        """Replace all cordons by those that operators of all balancers want."""
        desired = {each.cordon.first: each.cordon for each in shared}
        decisions: list[Decision] = []
        for id in self.cordons.without(desired):
            if (agent := self._state.registry.find(id)) is not None:
                decisions += self.resume(agent, now)
            self.cordons.remove(id)
        for cordon in self.cordons.missing(desired.values()):
            agent = self._state.registry.find(cordon.first) or self._called(cordon.name)
            self.cordons.keep(cordon.first if agent is None else agent.host, cordon)
            if agent is not None:
                decisions += self._set_cordoned(agent.host, now, is_cordoned=True)
        deadlines = {e.cordon.first: None if e.within is None else now + e.within for e in shared}
        self.cordons.meet(deadlines)
        return decisions

    def _called(self, name: str) -> Agent | None:
        """Return an agent of this name that is not drained yet; it may have restarted."""
        agents = self._state.registry.current()
        return next((a for a in agents if a.name == name and not a.is_cordoned), None)

    def cordon(self, agent: Agent, deadline: float | None, now: float) -> list[Decision]:
        """Give a host no new requests; requests that still run at `deadline` move then."""
        self.cordons.add(agent.host, agent.name, deadline)
        return self._set_cordoned(agent.host, now, is_cordoned=True)

    def resume(self, agent: Agent, now: float) -> list[Decision]:
        """Let a host get requests again."""
        self.cordons.remove(agent.host)
        return self._set_cordoned(agent.host, now, is_cordoned=False)

    def _set_cordoned(self, host: AgentId, now: float, *, is_cordoned: bool) -> list[Decision]:
        agents = self._state.registry.on_host(host)
        for agent in agents:
            agent.is_cordoned = is_cordoned
        return [decision for agent in agents for decision in self._changed(agent, now)]

    def reload(self, agent: Agent, drain_timeout: float, now: float) -> list[Decision]:
        """Let a host load its models again, or try again models that failed to load."""
        registry = self._state.registry
        agents = registry.on_host(agent.host)
        if any(each.work is not None and each.work.phase == "failed" for each in agents):
            decisions = self._reconcile(now)  # it may have failed since the last one
            self._controller.retry(agent.host, now)
            self.look_soon(now)
            return decisions
        order = Reload(drain_timeout=drain_timeout)
        return [registry.message_to(each.link, order, now) for each in agents]

    def _changed(self, agent: Agent, now: float) -> list[Decision]:
        self._state.registry.touch(agent.link)
        self.look_soon(now)
        decisions = self._state.requests.agent_changed(agent, now)
        return [*decisions, *self._state.dispatcher.agent_changed(agent, now)]

    # ---- time

    def next_deadline(self) -> float | None:
        """Return when to reconcile, or to move the requests of a drained agent."""
        move_at = self.cordons.next_deadline()
        if self._controller.desired is None:
            return move_at
        return earliest(move_at, self._reconcile_at, self._controller.reconcile_at)

    def due(self, now: float) -> list[Decision]:
        """Reconcile if it is due, and move requests of drained agents."""
        decisions: list[Decision] = []
        for agent in self.cordons.due(now):
            decisions += self._move_requests(agent, now)
        times = (self._reconcile_at, self._controller.reconcile_at)
        if self._state.is_draining:
            self._reconcile_at = self._controller.reconcile_at = None
        elif any(time is not None and time <= now for time in times):
            decisions += self._reconcile(now)
        return decisions

    def _move_requests(self, id: AgentId, now: float) -> list[Decision]:
        error = ShuttingDown("the agent was drained before the request had ended")
        registry = self._state.registry
        agents = registry.on_host(id)
        links = [link for each in agents for link in registry.links_of(each.hello.agent_id)]
        return [each for link in links for each in self._state.requests.move_from(link, error, now)]

    # ---- reconciliation

    def _reconcile(self, now: float) -> list[Decision]:
        self._reconcile_at = None
        before = dict(self._controller.statuses)
        demands = self._demands()
        given = self._controller.reconcile(self._reports(), demands, now)
        if given or before != self._controller.statuses:
            self._state.changes.advance()
        registry = self._state.registry
        orders = [
            registry.message_to(registry.of(each.agent).link, each.order, now) for each in given
        ]
        return [*orders, *self._leave_out(now), *self._refuse_failed(demands, now)]

    def _refuse_failed(self, demands: Mapping[str, Demand], now: float) -> list[Decision]:
        """End requests for models that failed to load, and refuse others until the next try.

        A later request waits and has the model loaded, if an agent is free for it.
        """
        found: dict[str, LoadFailure] = {}
        for name, status in self.statuses.items():
            if status.status == "failed" and status.issues:
                until = self._controller.next_attempt(name, now)
                if until is None and name in demands:
                    until = now + UNSCHEDULED
                elif until is None and name in self._failures:
                    until = self._failures[name].until
                if until is not None and until > now:
                    found[name] = LoadFailure(status.issues[0], until)
        found |= {name: found[base] for name, base in self._bases.items() if base in found}
        if all(each.status in ("failed", "unloaded") for each in self.statuses.values()):
            found |= {"": found[self._first_model]} if self._first_model in found else {}
        if found == self._failures:
            return []
        self._failures = found
        self._state.changes.advance()
        models = self._state.models
        models.fail(found)
        errors = {name: e for name in found if (e := models.failed(name or None, now)) is not None}
        if not errors:
            return []
        return self._state.end(self._state.lives.refused(errors), now)

    def _leave_out(self, now: float) -> list[Decision]:
        """End requests for adapters that cannot be served, and refuse further ones."""
        found = self._look_at_adapters()
        if found == self._left_out:
            return []
        self._left_out = found
        self._state.changes.advance()
        models = self._state.models
        models.leave_out({name: issue.message for name, issue in found.items()})
        errors = {name: error for name in found if (error := models.left_out(name)) is not None}
        return self._state.end(self._state.lives.refused(errors), now) if errors else []

    def _look_at_adapters(self) -> Mapping[str, Issue]:
        """Update the status of all adapters.

        Returns why the adapters without an agent cannot be served.
        """
        before = self.adapters
        found = {
            adapted_name(name, adapter.name): status_of_adapter(adapter, base, agents)
            for name, base in self.statuses.items()
            if base.model.adapters
            for agents in [self._agents_of(base)]
            for adapter in base.model.adapters
        }
        self.adapters = {name: each.status for name, each in found.items()}
        if self.adapters != before:
            self._state.changes.advance()
        return {name: each.left_out for name, each in found.items() if each.left_out is not None}

    def dry_run(self, desired: DesiredState, now: float) -> Plan:
        """Return the steps that this desired state would cause."""
        return self._controller.dry_run(desired, self._reports(), self._demands(), now)

    def _reports(self) -> Iterable[AgentReport]:
        hosts: dict[AgentId, list[Agent]] = {}
        here = list(self._state.registry.current())
        for agent in here:
            hosts.setdefault(agent.host, []).append(agent)
        others = {host: memory_of_others(agents) for host, agents in hosts.items()}
        return [self._report(each, others[each.host]) for each in here]

    def _report(self, agent: Agent, others: Mapping[str, int]) -> AgentReport:
        retired = self._state.registry.retired(agent.hello.agent_id)
        finishing = None if agent.is_accepting else agent.model
        finishing = next((each.model for each in reversed(retired) if each.model), finishing)
        present = agent.model or finishing
        name = None if present is None else present.name
        processes = [agent, *(each for each in retired if each.served == name)]
        return AgentReport(
            id=agent.hello.agent_id,
            link=agent.link,
            host=agent.hello.host,
            num_places=agent.hello.num_places,
            name=agent.name,
            labels=agent.hello.labels,
            facts=agent.hello.facts,
            work=agent.work,
            serves=agent.served if agent.takes_work else None,
            finishing=None if finishing is None else finishing.name,
            held={part.device: part.bytes for part in present.memory} if present else {},
            others=others,
            slots=agent.slots,
            issues=agent.issues,
            num_running=max(
                sum(map(self._state.num_running_on, processes)),
                *(each.num_at_work for each in processes),
            ),
            used_at=agent.used_at,
            is_cordoned=agent.is_cordoned or _is_leaving(agent),
            allowed=None if agent.holder is None else agent.holder.limits.models,
            protocol=agent.hello.protocol,
        )

    def _demands(self) -> dict[str, Demand]:
        """Return the models for which requests and queries wait.

        Requests without a model name count for the first model.
        """
        at_peers = (
            (name, each.num_waiting, each.since) for name, each in self._peer_demands.items()
        )
        return self._added_up(chain(self._waiting(), at_peers))

    def _added_up(self, waiting: Iterable[tuple[str | None, int, float]]) -> dict[str, Demand]:
        demands: dict[str, Demand] = {}
        for model, num_waiting, since in waiting:
            name = self._first_model if model is None else self._bases.get(model, model)
            if name:
                known = demands.get(name)
                earliest = since if known is None else min(since, known.since)
                num_known = 0 if known is None else known.num_waiting
                demands[name] = Demand(num_known + num_waiting, earliest)
        return demands

    def _waiting(self) -> Iterator[tuple[str | None, int, float]]:
        yield from self._state.requests.demands()
        yield from self._state.dispatcher.demands()


def _is_leaving(agent: Agent) -> bool:
    """Return whether the agent takes no new requests, other than for a change of model."""
    phases = ("draining", "loading", "fetching", "waiting")
    return not agent.is_accepting and (agent.work is None or agent.work.phase not in phases)


def may_need_order(agent: Agent, status: Status) -> bool:
    """Return whether a status may need an order.

    A status with only a new download progress needs none.
    """
    return (
        agent.model != status.model
        or agent.is_accepting != status.accepting
        or _essence(agent.work) != _essence(status.work)
    )


def _essence(work: Work | None) -> tuple[object, ...]:
    if work is None:
        return ()
    return (work.revision, work.assignment, work.phase, work.needed, work.least, work.claims)


def memory_of_others(agents: Sequence[Agent]) -> Mapping[str, int]:
    """Return the bytes that other programs use in each memory of a host.

    The bytes come from the last measurements of the host's `agents`. If a memory's driver does not
    report them, they are all bytes that are neither free nor of a loaded model. Such a memory is
    left out while a model is being loaded or unloaded.
    """
    measured = {
        each.name: each for agent in agents if agent.statistics for each in agent.statistics.devices
    }
    phases = {agent.work.phase for agent in agents if agent.work is not None}
    is_changing = not phases.isdisjoint(("loading", "draining"))
    held: Counter[str] = Counter()
    for agent in agents:
        for part in agent.model.memory if agent.model else ():
            held[part.device] += part.bytes
    found = {}
    for name, memory in measured.items():
        others = memory.others
        if others is None and not is_changing:
            others = memory.total - memory.free - held[name]
        if others is not None and others > 0:
            found[name] = others
    return found
