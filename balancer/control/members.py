"""An agent as the controller sees it: what it reports, and its last order."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from ...shared.inference import AgentId
from ...shared.messages import PROTOCOL_VERSION, Issue, for_version
from ...shared.models.assignments import HOST, Assignment, HostFacts, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """The controller's knowledge of a connected agent.

    - `serves`: the model that the agent takes requests for now; `used_at`: when one of the model's
      requests last started or ended.
    - `link` changes when the agent dials again; `protocol` is the version that it speaks.
    - `allowed`: the models that its access key allows; `None` is any.
    - Agents with the same `host` share its memory; the host says that they are `num_places`.
    - `finishing`: the model that the agent still has, and takes no new requests for.
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

    `interrupts` is the model that the agent served before, if other agents must serve it meanwhile.
    """

    revision: int
    assignment: Assignment | None
    link: int
    interrupts: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An agent and its last order.

    `assigned` is what the agent should serve by its last order. `is_changing`: it does not serve
    that yet. `has_failed`: it could not load it, and serves what it served before, if anything.
    `keeps` is a model that it was told to unload although no other model needs its room any more;
    the agent counts for this model.
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
        """The model that the agent still has and is to unload by its last order."""
        has = self.report.serves or self.report.finishing
        to_serve = None if self.assigned is None else self.assigned.name
        return has if self.is_changing and has != to_serve else None

    @property
    def comes(self) -> str | None:
        """The model that the agent is about to serve, but does not serve yet."""
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
