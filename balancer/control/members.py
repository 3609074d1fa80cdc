"""An agent from the controller's view: its report, its last order, and its failed loads."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ...shared.inference import AgentId
from ...shared.messages import PROTOCOL_VERSION, Issue, for_version
from ...shared.models.assignments import HOST, Assignment, HostFacts, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """The controller's knowledge of a connected agent.

    - `serves`: the model for which the agent takes requests now; `used_at`: when one of the
      model's requests last started or ended.
    - `link` changes when the agent dials again; `protocol` is the version that it speaks.
    - `allowed`: the models that the agent's access key allows; `None` is any.
    - Agents with the same `host` share its memory; the host reports that they are `num_places`.
    - `finishing`: the model that the agent still has, but for which it takes no new requests.
    - `held`: the bytes of each memory that these models take, if known; `others`: the bytes that
      other programs had of each memory when it was measured.

    A cordoned agent is not changed.
    """

    id: AgentId
    link: int
    host: AgentId | None = None
    num_places: int = 1
    name: str
    labels: Mapping[str, str]
    facts: HostFacts
    work: Work | None = None
    serves: str | None = None
    finishing: str | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    slots: int = 0
    issues: tuple[Issue, ...] = ()
    num_running: int = 0
    used_at: float = -inf
    is_cordoned: bool = False
    allowed: Sequence[str] | None = None
    protocol: int = PROTOCOL_VERSION

    @property
    def host_id(self) -> AgentId:
        """The id of the agent's host; the agent's own id if it is alone there."""
        return self.host or self.id

    def knows(self, assignment: Assignment) -> bool:
        """Return whether the agent's protocol version has every field the assignment uses."""
        return for_version(assignment, self.protocol) is assignment

    def may_serve(self, model: str) -> bool:
        """Return whether the agent's key allows the model."""
        return self.allowed is None or model in self.allowed

    @property
    def is_steered(self) -> bool:
        """Return whether the agent is neither pinned to a model nor cordoned."""
        return not (self.facts.is_pinned or self.is_cordoned)

    @property
    def memory(self) -> int:
        """The bytes that a model may use on the host; 0 if the agent does not report them."""
        return sum(self.memories.values())

    @property
    def memories(self) -> dict[str, int]:
        """The bytes of the host's memory, and of each device, by name."""
        return {HOST: self.facts.memory} | {each.name: each.memory for each in self.facts.devices}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order that an agent has not carried out yet.

    `interrupts` is the model that the agent served earlier, if other agents must serve it in the
    meantime.
    """

    revision: int
    assignment: Assignment | None
    link: int
    interrupts: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An agent and its last order.

    `assigned` is the model that the agent should serve by its last order. `is_changing`: it does
    not serve that model yet. `has_failed`: it could not load the model, and serves its previous
    model, if any. `keeps` is a model that the agent was told to unload although no other model
    needs its room any more; the agent counts for this model.
    """

    report: AgentReport
    assigned: Assignment | None = None
    is_changing: bool = False
    has_failed: bool = False
    interrupts: str | None = None
    keeps: str | None = None

    @property
    def id(self) -> AgentId:
        """The agent's id."""
        return self.report.id

    @property
    def waits_for_room(self) -> bool:
        """Return whether the agent has its model's file and waits for memory to load it."""
        work, report = self.report.work, self.report
        return (
            self.keeps is None
            and self.is_changing
            and report.serves is None
            and work is not None
            and work.phase == "draining"
            and work.assignment == self.assigned is not None
        )

    @property
    def leaves(self) -> str | None:
        """The model that the agent still has and should unload by its last order."""
        has = self.report.serves or self.report.finishing
        to_serve = None if self.assigned is None else self.assigned.name
        return has if self.is_changing and has != to_serve else None

    @property
    def comes(self) -> str | None:
        """The model that the agent will serve, but does not serve yet."""
        to_serve = None if self.assigned is None else self.assigned.name
        return to_serve if self.is_changing and self.report.serves != to_serve else None

    @property
    def model(self) -> str | None:
        """The model for which the agent counts."""
        if self.keeps is not None:
            return self.keeps
        if self.has_failed or self.report.facts.is_pinned:
            return self.report.serves
        return None if self.assigned is None else self.assigned.name


def member_of(report: AgentReport, order: Order | None) -> Member:
    """Return the agent with its order, if one is in progress."""
    work = report.work
    if order is not None and (work is None or work.revision < order.revision):
        return Member(
            report=report,
            assigned=order.assignment,
            is_changing=True,
            interrupts=order.interrupts,
        )
    assigned = None if work is None else work.assignment
    is_changing = _is_changing(work)
    interrupts = None if assigned is None else assigned.name
    if order is not None:
        interrupts = order.interrupts
    return Member(
        report=report,
        assigned=assigned,
        is_changing=is_changing,
        has_failed=work is not None and work.phase == "failed",
        interrupts=interrupts if is_changing else None,
    )


def all_have_dialled(reports: Iterable[AgentReport]) -> bool:
    """Return whether each host has as many agents connected as its agents report."""
    here: Counter[AgentId] = Counter()
    expected: dict[AgentId, int] = {}
    for report in reports:
        here[report.host_id] += 1
        expected[report.host_id] = max(report.num_places, expected.get(report.host_id, 1))
    return all(here[host] >= num for host, num in expected.items())


def _is_changing(work: Work | None) -> bool:
    if work is None:
        return False
    if work.assignment is None:
        return work.phase == "draining"
    return work.phase not in ("serving", "failed")


FIRST_RETRY = 30.0
"""Seconds until an agent without a model tries again; the pause doubles each time."""

LAST_RETRY = 600.0

OF_THE_HOST = frozenset({"too_large", "does_not_fit", "disk_full", "denied", "no_memory"})
"""Codes of issues that say nothing about other agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A model that an agent of a host could not load, `num_tries` times in a row.

    `is_forced`: an operator wants the host to try again at once.
    """

    host: AgentId
    agent_name: str
    assignment: Assignment
    issues: tuple[Issue, ...]
    num_tries: int
    retry_at: float
    stops_others: bool
    is_forced: bool = False


class Failures:
    """Failed loads by host and model; the host's id is common to its agents.

    They decide when each load is tried again, and which changes stop because of it. Invariant:
    there is one failure for each host and model, for the last desired assignment.
    """

    def __init__(self) -> None:
        self._failures: dict[tuple[AgentId, str], Failure] = {}

    def __iter__(self) -> Iterator[Failure]:
        return iter(self._failures.values())

    def of(self, host: AgentId, assignment: Assignment) -> Failure | None:
        """Return the failure of this host with exactly this assignment, if any."""
        failure = self._failures.get((host, assignment.name))
        return failure if failure is not None and failure.assignment == assignment else None

    def codes(self, assignment: Assignment) -> Mapping[AgentId, str]:
        """Return each host that failed with exactly this assignment, with the code of its issue."""
        found = (each for each in self if each.assignment == assignment and each.issues)
        return {each.host: each.issues[0].code for each in found}

    def may_try(self, host: AgentId, assignment: Assignment, now: float) -> bool:
        """Return whether the host may try the assignment: it never failed, or a retry is due."""
        failure = self.of(host, assignment)
        return failure is None or failure.retry_at <= now

    def stops(self, assignment: Assignment) -> Failure | None:
        """Return the failure because of which no more agents give up their models for this
        assignment.
        """
        found = (f for f in self if f.stops_others and f.assignment == assignment)
        return next(found, None)

    def failed(self, member: Member, *, is_new: bool, now: float) -> None:
        """Record that an agent could not carry out its order.

        `is_new`: this is its first report since the order.
        """
        assignment = member.assigned
        if assignment is None:
            return
        host = member.report.host_id
        old = self.of(host, assignment)
        if old is not None and not is_new:
            return
        num_tries = 1 if old is None else old.num_tries + 1
        issues = member.report.issues
        is_of_host = bool(issues) and all(issue.code in OF_THE_HOST for issue in issues)
        self._failures[host, assignment.name] = Failure(
            host=host,
            agent_name=member.report.name,
            assignment=assignment,
            issues=issues,
            num_tries=num_tries,
            retry_at=now + min(FIRST_RETRY * 2 ** min(num_tries - 1, 10), LAST_RETRY),
            stops_others=not is_of_host or member.report.serves is not None,
        )

    def succeeded(self, host: AgentId, model: str) -> None:
        """Record that the host serves the model."""
        self._failures.pop((host, model), None)

    def retry(self, host: AgentId, now: float) -> None:
        """Let the host try again at once, because an operator wants it."""
        for key, failure in self._failures.items():
            if key[0] == host:
                self._failures[key] = replace(
                    failure, retry_at=now, is_forced=True, stops_others=False
                )

    def keep_only(self, desired: Mapping[str, Assignment], hosts: Iterable[AgentId]) -> None:
        """Forget failures of assignments that are no longer desired, and of hosts that left."""
        here = set(hosts)
        self._failures = {
            key: failure
            for key, failure in self._failures.items()
            if desired.get(key[1]) == failure.assignment and key[0] in here
        }

    def next_retry(self, now: float, model: str | None = None) -> float | None:
        """Return when a host may next try again, with this model or any."""
        found = (f for f in self if model is None or f.assignment.name == model)
        return min((f.retry_at for f in found if f.retry_at > now), default=None)
