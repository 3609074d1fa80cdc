"""Wishes, and agents that do what they are told: by themselves, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from arriero.balancer.control.desired_state import AgentChoice, DesiredModel, DesiredState
from arriero.balancer.control.members import AgentReport
from arriero.shared.inference import AgentId
from arriero.shared.messages import PROTOCOL_VERSION, Issue
from arriero.shared.models.assignments import Assign, Assignment, HostFacts, Work, needs_reload

GIB = 2**30


def wished(name: str, version: int = 1, **fields: Any) -> DesiredModel:
    """A model; each version has another file."""
    labels = fields.pop("labels", {})
    replicas = fields.pop("replicas", "all")
    return DesiredModel(
        name=name,
        source=fields.pop("source", f"file:///{name}-{version}.gguf"),
        agents=AgentChoice(labels=labels, replicas=replicas),
        **fields,
    )


def state(*models: DesiredModel) -> DesiredState:
    return DesiredState(models=models)


def report(name: str, **fields: Any) -> AgentReport:
    """An agent; with `told`, it does that since order 1."""
    told: Assignment | None = fields.pop("told", None)
    phase = fields.pop("phase", "serving")
    if told is not None:
        fields["work"] = Work(revision=1, assignment=told, phase=phase)
        if phase == "serving":
            fields.setdefault("serves", told.name)
    fields.setdefault("facts", HostFacts())
    fields.setdefault("labels", {})
    return AgentReport(id=AgentId(name), link=fields.pop("link", 1), name=name, **fields)


@dataclass
class SimulatedAgent:
    """Holds an assignment as real ones do; `bad` sources cannot be loaded.

    One with `has_room` loads beside; what ran goes on serving until then, and if it fails.
    """

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    has_room: bool = True
    is_pinned: bool = False
    memory: int = 0
    link: int = 1
    revision: int = 0
    told: Assignment | None = None
    runs: Assignment | None = None
    is_serving: bool = False
    phase: str = "waiting"
    issues: tuple[Issue, ...] = ()
    is_cordoned: bool = False
    allowed: Sequence[str] | None = None
    protocol: int = PROTOCOL_VERSION
    num_running: int = 0
    used_at: float = -inf
    host: AgentId | None = None
    num_places: int = 1
    inbox: list[Assign] = field(default_factory=list)

    def report(self) -> AgentReport:
        has_work = self.revision > 0
        return AgentReport(
            id=AgentId(self.name),
            link=self.link,
            name=self.name,
            labels=self.labels,
            facts=HostFacts(is_pinned=self.is_pinned, memory=self.memory),
            work=Work(revision=self.revision, assignment=self.told, phase=self.phase)  # type: ignore[arg-type]
            if has_work
            else None,
            serves=self.runs.name if self.runs is not None and self.is_serving else None,
            slots=4,
            issues=self.issues,
            num_running=self.num_running,
            used_at=self.used_at,
            is_cordoned=self.is_cordoned,
            allowed=self.allowed,
            protocol=self.protocol,
            host=self.host,
            num_places=self.num_places,
        )

    def hear(self) -> None:
        """Take the orders that have arrived."""
        while self.inbox:
            order = self.inbox.pop(0)
            if order.revision >= self.revision:
                self._take(order)

    def _take(self, order: Assign) -> None:
        self.revision, self.told, self.issues = order.revision, order.assignment, ()
        if order.assignment is None:
            self.runs, self.is_serving, self.phase = None, False, "waiting"
        elif self.runs is not None and not needs_reload(
            self.runs, order.assignment, loaded_slots=self.runs.slots or 4
        ):
            self.runs, self.is_serving, self.phase = order.assignment, True, "serving"
        else:
            self.phase = "loading"
            self.is_serving = self.is_serving and self.has_room

    def finish(self, bad: set[str]) -> None:
        """What it loads is loaded, or turns out to be bad."""
        if self.phase != "loading" or self.told is None:
            return
        if self.told.source in bad:
            self.phase = "failed"
            self.issues = (Issue(code="load_failed", message="not a GGUF file"),)
            self.is_serving = self.runs is not None
        else:
            self.runs, self.is_serving, self.phase = self.told, True, "serving"

    def crash(self) -> None:
        """Its engine is started again."""
        if self.runs is not None and self.phase == "serving":
            self.is_serving, self.phase = False, "loading"
