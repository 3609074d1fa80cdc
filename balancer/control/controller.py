"""Compares the desired state with the fleet, and decides which agent should serve which model.

The comparison always covers the whole fleet, as agents report it. So after a restart of the
balancer, or when an agent connects again, no agent gets an order for a model that it serves
already. Between comparisons the controller remembers orders in progress, failures, the last use of
models, and agents that left a moment ago.

Invariants: a pinned or cordoned agent gets no orders; no order repeats what its agent does
already; without a desired state there are no orders; the numbers of orders grow; only the leader
gives orders.
"""

from collections.abc import Iterable, Mapping, Set
from copy import deepcopy
from dataclasses import dataclass, replace

from ...shared.inference import AgentId
from ...shared.messages import Issue
from ...shared.models.assignments import Assign, Assignment, sources_of
from .agent_plan import Plan, plans_of
from .demand import WAITING, Demand, Tiers, Usage
from .desired_state import DesiredModel, DesiredState
from .members import AgentReport, Failures, Member, Order, all_have_dialled, member_of
from .model_status import TOO_OLD, ModelStatus, by_model, shortage_of, status_of
from .placement import Departures, MemoryNeeds, Placement, Requirement, place
from .rollout import Reassignment, Rollout
from .whereabouts import Obstacle, placement_in_words

VERSIONS = 2**32
"""Maximum orders in one epoch; `Assign.revision` has room for 2 million epochs."""

MOST_BELIEVED = 2**52
"""Half of the range of order numbers."""


def epoch_of(number: int) -> int:
    """Return the epoch in which an order was given."""
    return number // VERSIONS


class OrderNumbers:
    """The numbers of orders. Of two orders, an agent obeys the one with the larger number.

    One of several balancers leads, in an epoch larger than all earlier epochs. An order's number
    begins with the epoch. So an agent that has heard a later leader ignores the orders of an
    earlier leader. The first epoch is 0, in which a single balancer leads; numbers then continue
    after the largest number that agents know.

    Invariant: numbers grow, and belong to the leading epoch, if that is not 0.
    """

    def __init__(self) -> None:
        self.last = 0
        """The largest number that was given, or that an agent knows."""
        self._epoch: int | None = 0

    @property
    def may_order(self) -> bool:
        """Return whether this balancer leads and no agent has reported a newer leader."""
        return self._epoch is not None and self.outbid is None

    @property
    def outbid(self) -> int | None:
        """Return the later epoch that agents know, if any; a leader needs an epoch beyond it."""
        known = epoch_of(self.last)
        return known if self._epoch and known > self._epoch else None

    def lead(self, epoch: int) -> None:
        """Give orders in this epoch."""
        self._epoch = epoch
        self.last = max(self.last, epoch * VERSIONS)

    def follow(self) -> None:
        """Give no orders."""
        self._epoch = None

    def seen(self, number: int) -> None:
        """Record that an agent obeys the order of this number.

        If no leader can have given the number, it is ignored, because orders need numbers beyond
        it.
        """
        if number < MOST_BELIEVED:
            self.last = max(self.last, number)

    def next(self) -> int:
        """Return the number of the next order. Call it only if `may_order`."""
        if not self.may_order:
            raise RuntimeError("an order, but another balancer leads")
        self.last += 1
        return self.last


SETTLE = 6.0
"""Seconds after a start in which agents dial again; until then no orders are given.

For the same time again, no orders are given while a host reports more agents than have dialled.
Otherwise one of its agents could be ordered a model that another is loading already.
"""


@dataclass(frozen=True, slots=True)
class GiveOrder:
    """Send this order to this agent."""

    agent: AgentId
    order: Assign


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of comparing the desired state with the fleet.

    `obstacles`: for each model to load, the agents that may not get the model, and why.
    """

    members: Mapping[AgentId, Member]
    tiers: Tiers
    placement: Placement
    targets: Mapping[AgentId, Assignment | None]
    obstacles: Mapping[str, Mapping[AgentId, Obstacle]]


class Controller:
    """The controller. Call `reconcile` after every change, and at `reconcile_at`."""

    def __init__(self, *, drain_timeout: float, http_hosts: tuple[str, ...] = ()) -> None:
        """Make a controller. Before a reload, requests may go on for `drain_timeout` seconds.

        Only `http_hosts` may send model files without TLS."""
        self.statuses: Mapping[str, ModelStatus] = {}
        self.reconcile_at: float | None = None
        self._drain_timeout = drain_timeout
        self._http_hosts = http_hosts
        self._desired: DesiredState | None = None
        self._settled_at = 0.0
        self._numbers = OrderNumbers()
        self._orders: dict[AgentId, Order] = {}
        self._failures = Failures()
        self._needs = MemoryNeeds()
        self._departures = Departures()
        self._usage = Usage()
        self._last: Reconciliation | None = None

    @property
    def desired(self) -> DesiredState | None:
        """The desired state; `None` if no operator has set one."""
        return self._desired

    # ---- events

    def desire(self, desired: DesiredState) -> None:
        """Take the state that an operator wants."""
        self._desired = desired
        self.statuses = {model.name: self._first_status(model) for model in desired.models}

    def restored(self, desired: DesiredState, now: float) -> None:
        """Take the desired state of an earlier run, whose agents have yet to connect again."""
        self.desire(desired)
        self._settled_at = now + SETTLE

    def lead(self, epoch: int) -> None:
        """Give orders from now on; see `OrderNumbers`."""
        self._numbers.lead(epoch)

    def follow(self) -> None:
        """Give no more orders, and forget orders that agents may not have received."""
        self._numbers.follow()
        self._orders.clear()

    @property
    def outbid(self) -> int | None:
        """Return an epoch known to agents that is later than this balancer's, if any."""
        return self._numbers.outbid

    def retry(self, host: AgentId, now: float) -> None:
        """Let a host try again an order that failed, because an operator wants it."""
        self._failures.retry(host, now)

    def next_attempt(self, model: str, now: float) -> float | None:
        """Return when an agent may next try to load a failed model; `None` if it may now."""
        return self._failures.next_retry(now, model)

    def placement_of(self, model: DesiredModel) -> str | None:
        """Return a model's last placement and its reasons, in words.

        Returns `None` if the model is not to be loaded.
        """
        found = self._last
        obstacles = None if found is None else found.obstacles.get(model.name)
        if found is None or obstacles is None:
            return None
        chosen = [id for id, name in found.placement.models.items() if name == model.name]
        return placement_in_words(
            [found.members[id] for id in chosen],
            obstacles,
            found.members,
            needed=self._needs.least_of(model.assignment),
            failed_with=self._failures.codes(model.assignment),
        )

    def reconcile(
        self, reports: Iterable[AgentReport], demands: Mapping[str, Demand], now: float
    ) -> list[GiveOrder]:
        """Compare the desired state with the fleet, and return orders.

        `demands` has the models that requests wait for.
        """
        members = self._members(reports, now)
        if self._desired is None:
            self.reconcile_at = None
            return []
        found = self._decide(self._desired, members, demands, now, usage=self._usage)
        self._last = found
        may_order = self._numbers.may_order and self._is_settled(members, now)
        given = self._orders_for(found, now) if may_order else []
        after = {**members, **{each.agent: self._after(members, each) for each in given}}
        self.statuses = self._statuses(self._desired, replace(found, members=after))
        self.reconcile_at = self._next_reconciliation(found.tiers, now)
        return given

    def _is_settled(self, members: Mapping[AgentId, Member], now: float) -> bool:
        """Return whether all known agents have connected since the start, or had time to."""
        if now < self._settled_at:
            return False
        return now >= self._settled_at + SETTLE or all_have_dialled(
            member.report for member in members.values()
        )

    def dry_run(
        self,
        desired: DesiredState,
        reports: Iterable[AgentReport],
        demands: Mapping[str, Demand],
        now: float,
    ) -> Plan:
        """Return all agents' steps for this desired state, and models that would lack agents.

        Changes nothing.
        """
        members = {report.id: member_of(report, self._orders.get(report.id)) for report in reports}
        found = self._decide(desired, members, demands, now, usage=deepcopy(self._usage))
        lacking = ((model.name, self._shortage(model, found)) for model in desired.models)
        return Plan(
            plans_of(members.values(), found.targets),
            {name: issue for name, issue in lacking if issue is not None},
        )

    # ---- what it sees

    def _members(self, reports: Iterable[AgentReport], now: float) -> dict[AgentId, Member]:
        """Return agents with their orders, and record the outcome of orders."""
        members = {}
        for report in reports:
            self._needs.learn(report)
            if report.work is not None:
                self._numbers.seen(report.work.revision)
            members[report.id] = self._member(report, now)
        for id in self._orders.keys() - members.keys():
            del self._orders[id]
        self._departures.update(members, now)
        models = self._desired.models if self._desired is not None else ()
        hosts = {member.report.host_id for member in members.values()}
        self._failures.keep_only({model.name: model.assignment for model in models}, hosts)
        return members

    def _member(self, report: AgentReport, now: float) -> Member:
        order = self._orders.get(report.id)
        if order is not None and _is_lost(order, report):
            order = None
            del self._orders[report.id]
        member = member_of(report, order)
        if not member.is_changing:
            self._orders.pop(report.id, None)
        if member.has_failed:
            if not self._allows_others(member):
                self._failures.failed(member, is_new=order is not None, now=now)
        elif member.assigned is not None and not member.is_changing:
            self._failures.succeeded(report.host_id, member.assigned.name)
        return member

    def _allowed(self, assignment: Assignment) -> Assignment:
        """Return the assignment with the hosts allowed to send files without TLS, if needed."""
        is_open = any(source.startswith("http://") for source in sources_of(assignment))
        return replace(assignment, http_hosts=self._http_hosts if is_open else ())

    def _allows_others(self, member: Member) -> bool:
        """Return whether the agent's assignment allows other HTTP hosts than the current ones.

        If that assignment failed, the agent may try the current assignment at once.
        """
        assigned = member.assigned
        return assigned is not None and self._allowed(assigned).http_hosts != assigned.http_hosts

    # ---- what it decides

    def _decide(
        self,
        desired: DesiredState,
        members: Mapping[AgentId, Member],
        demands: Mapping[str, Demand],
        now: float,
        *,
        usage: Usage,
    ) -> Reconciliation:
        steered = [member for member in members.values() if member.report.is_steered]
        tiers = usage.tiers(desired.models, steered, demands, now)
        steered = [tiers.recalled.get(member.id, member) for member in steered]
        reserved = self._departures.reserved()
        held = {member.model for member in steered}
        served = {member.report.serves for member in members.values()}
        are_there = held | served | self._departures.redialling(now)
        assignments = {model.name: self._allowed(model.assignment) for model in desired.models}
        loading = {member.id for member in steered if _is_loading(member, assignments)}
        requirements = []
        obstacles: dict[str, Mapping[AgentId, Obstacle]] = {}
        for model in desired.models:
            if model.name in tiers.tiers:
                is_missed = model.name in demands and model.name not in held
                kept = 0 if is_missed else reserved[model.name]
                found = obstacles[model.name] = self._obstacles(model, steered, loading, now)
                eligible = {member.id for member in steered} - found.keys()
                requirement = self._requirement(model, eligible, tiers.tiers[model.name], kept)
                requirements.append(
                    replace(
                        requirement,
                        is_gone=model.name not in are_there,
                        used_at=usage.used_at(model.name),
                        claims=self._needs.claims(model.assignment, steered),
                    )
                )
        placement = place(requirements, steered)
        targets = {
            id: None
            if name is None
            else replace(assignments[name], takes_what_is_left=id in placement.take_what_is_left)
            for id, name in placement.models.items()
        }
        return Reconciliation(members, tiers, placement, targets, obstacles)

    def _obstacles(
        self, model: DesiredModel, members: Iterable[Member], loading: Set[AgentId], now: float
    ) -> Mapping[AgentId, Obstacle]:
        """Return the agents that may not get the model, each with the reason."""
        assignment = model.assignment
        found: dict[AgentId, Obstacle] = {}
        for member in members:
            report = member.report
            if not _has_labels(model, report):
                found[member.id] = "labels"
            elif not report.may_serve(model.name):
                found[member.id] = "key"
            elif not report.knows(assignment):
                found[member.id] = "version"
            elif not self._needs.fits(assignment, report):
                found[member.id] = "memory"
            elif member.model != model.name:
                why = self._why_not(member, assignment, now, is_loading=member.id in loading)
                found |= {} if why is None else {member.id: why}
        return found

    def _requirement(
        self, model: DesiredModel, eligible: Set[AgentId], tier: int, reserved: int
    ) -> Requirement:
        replicas = model.agents.replicas
        assignment = model.assignment
        return Requirement(
            model=model.name,
            at_least=1 if replicas == "all" else replicas,
            eligible=eligible,
            takes_rest=replicas == "all" and tier != WAITING,
            tier=tier,
            reserved=reserved,
            needed=self._needs.beside_others(assignment),
        )

    def _why_not(
        self, member: Member, assignment: Assignment, now: float, *, is_loading: bool
    ) -> Obstacle | None:
        """Return why the agent may not load the model.

        After a failure an agent without a model may still try.

        An agent that `is_loading` another desired model gives that up only for files that some
        agent has found. So a source with a typing error interrupts no load.
        """
        if not self._failures.may_try(member.report.host_id, assignment, now):
            return "failed"
        if is_loading and self._needs.of(assignment) is None:
            return "busy"
        has_something = is_loading or member.report.serves is not None
        if has_something and self._failures.stops(assignment) is not None:
            return "busy"
        return None

    def _orders_for(self, found: Reconciliation, now: float) -> list[GiveOrder]:
        placed = {name for name in found.placement.models.values() if name is not None}
        rollout = Rollout(
            list(found.members.values()),
            found.targets,
            protected=placed | found.tiers.tiers.keys(),
            failures=self._failures,
            now=now,
        )
        return [self._order(change) for change in rollout.changes()]

    def _order(self, change: Reassignment) -> GiveOrder:
        number = self._numbers.next()
        member = change.member
        self._orders[member.id] = Order(
            revision=number,
            assignment=change.assignment,
            link=member.report.link,
            interrupts=change.interrupts,
        )
        assign = Assign(
            revision=number,
            assignment=change.assignment,
            drain_timeout=self._drain_timeout,
        )
        return GiveOrder(member.id, assign)

    def _after(self, members: Mapping[AgentId, Member], given: GiveOrder) -> Member:
        return member_of(members[given.agent].report, self._orders[given.agent])

    # ---- what it tells

    def _statuses(self, desired: DesiredState, found: Reconciliation) -> dict[str, ModelStatus]:
        here = by_model(found.members.values())
        return {
            model.name: status_of(
                model,
                here.get(model.name, ()),
                is_in_demand=model.name in found.tiers.tiers,
                failures=self._failures,
                shortage=self._shortage(model, found),
            )
            for model in desired.models
        }

    def _first_status(self, model: DesiredModel) -> ModelStatus:
        """Return the status of a model before the first reconciliation."""
        status = self.statuses.get(model.name)
        if status is not None:
            return replace(status, model=model)
        return ModelStatus(model=model, status="waiting" if model.preload else "unloaded")

    def _shortage(self, model: DesiredModel, found: Reconciliation) -> Issue | None:
        num_missing = found.placement.missing.get(model.name, 0)
        if not num_missing:
            return None
        labelled = [
            member.report
            for member in found.members.values()
            if member.report.is_steered and _has_labels(model, member.report)
        ]
        assignment = model.assignment
        allowed = [report for report in labelled if report.may_serve(model.name)]
        if allowed and not any(report.knows(assignment) for report in allowed):
            return TOO_OLD
        allowed = [report for report in allowed if report.knows(assignment)]
        return shortage_of(
            model,
            num_missing,
            failed=sum(each.assignment == assignment for each in self._failures),
            labelled=len(labelled),
            allowed=len(allowed),
            needed=self._needs.least_of(assignment),
            fitting=sum(self._needs.fits(assignment, report) for report in allowed),
            most=max((report.memory for report in allowed), default=0),
        )

    def _next_reconciliation(self, tiers: Tiers, now: float) -> float | None:
        times = [
            tiers.reconcile_at,
            self._departures.next_change(now),
            self._failures.next_retry(now),
        ]
        times += [at for at in (self._settled_at, self._settled_at + SETTLE) if now < at]
        return min((time for time in times if time is not None), default=None)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        if any(order.revision > self._numbers.last for order in self._orders.values()):
            raise RuntimeError("an order is newer than the newest")
        names = set() if self._desired is None else {model.name for model in self._desired.models}
        if self.statuses.keys() != names:
            raise RuntimeError("statuses are not of the models that are desired")


def _is_loading(member: Member, desired: Mapping[str, Assignment]) -> bool:
    """Return whether the agent is changing to an assignment that is still desired."""
    assigned = member.assigned
    return member.is_changing and assigned is not None and desired.get(assigned.name) == assigned


def _is_lost(order: Order, report: AgentReport) -> bool:
    """Return whether the order was lost: the agent reconnected and does not know it."""
    is_known = report.work is not None and report.work.revision >= order.revision
    return report.link != order.link and not is_known


def _has_labels(model: DesiredModel, report: AgentReport) -> bool:
    return model.agents.labels.items() <= report.labels.items()
