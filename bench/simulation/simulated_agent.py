"""A simulated agent: an agent's own session before a simulated host. Messages in, messages out.

An agent with a model of its own serves that. One without serves what the balancer's controller
tells it to: it finishes what it has, and loads for a while. Then its cache is empty.
"""

from itertools import count
from typing import cast

from arriero.agent.link.decisions import (
    Decision,
    KeepSecret,
    MarkConnected,
    Obey,
    Send,
    StartGeneration,
)
from arriero.agent.link.queries import OpenQueries
from arriero.agent.link.requests import Requests, Slots
from arriero.agent.link.session import Session
from arriero.agent.sequence_id import SequenceId
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Ended,
    FromAgent,
    FromBalancer,
    Hello,
    Item,
    Output,
    Status,
)
from arriero.shared.models.assignments import Assign, HostFacts, Phase, Work
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Cells, Statistics
from bench.simulation.fluid_host import Cache, FluidHost, HostKind

MODEL = "m"
"""What agents serve that have a model of their own."""

REPORT_EVERY = 2.0
"""Seconds between two reports of a host that computes: a silent one counts as one that hangs."""


class SimulatedAgent:
    """`dial`, then `received` what the balancer sends; `advance` at `next_change`.

    With `load_seconds` it has no model of its own, and takes so long to load one.
    """

    def __init__(
        self,
        id: AgentId,
        name: str,
        kind: HostKind,
        now: float,
        *,
        load_seconds: float | None = None,
    ) -> None:
        self.host = _host(kind, now)
        self.serves = MODEL if load_seconds is None else None
        self._phase: Phase = "waiting" if self.serves is None else "serving"
        self._kind = kind
        self._load_seconds = load_seconds or 0.0
        self._order: Assign | None = None
        self._loaded_at: float | None = None
        self._num_computed_before = 0.0
        self._sequences: dict[RequestId, SequenceId] = {}
        numbers = count()
        status = self._status()
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=id,
            name=name,
            version="",
            slots=kind.slots,
            model=status.model,
            facts=HostFacts(is_pinned=load_seconds is None),
        )
        self._session = Session(
            hello=hello,
            status=status,
            requests=Requests(slots=Slots(kind.slots), numbers=numbers),
            queries=OpenQueries(numbers),
        )
        self._num_reports = 0
        self._reported_at = now
        self._session.report(self._statistics(), now)

    @property
    def num_computed(self) -> float:
        """Tokens of prompts that were computed here, whatever it served."""
        return self._num_computed_before + self.host.num_computed

    def dial(self, now: float) -> Hello:
        """What it says first."""
        (hello,) = self._sent(self._session.connected(now), now)
        return cast(Hello, hello)

    def received(self, message: FromBalancer, now: float) -> list[FromAgent]:
        """The balancer sent this; `advance` has been called for `now`."""
        return self._sent(self._session.received(message, now), now)

    def next_change(self) -> float | None:
        """When to call `advance`, at the latest."""
        report_at = self._reported_at + REPORT_EVERY if self.host.running else None
        times = (self.host.next_change(), self._loaded_at, report_at)
        return min((each for each in times if each is not None), default=None)

    def advance(self, now: float) -> list[FromAgent]:
        """The messages about what happened until `now`."""
        items = self.host.advance(now)
        messages = self._produced(items, now) if items else []
        if self.host.running and now >= self._reported_at + REPORT_EVERY:
            messages += self._report(now)
        if self._loaded_at is not None and now >= self._loaded_at:
            messages += self._loaded(now)
        elif self._phase == "draining" and not self.host.running:
            messages += self._load(now)
        return messages

    def _report(self, now: float) -> list[FromAgent]:
        self._num_reports += 1
        self._reported_at = now
        return self._sent(self._session.report(self._statistics(), now), now)

    def _statistics(self) -> Statistics:
        """Those of a host that has computed since the report before."""
        return Statistics(cells=Cells(total=self._kind.cache), computed_tokens=self._num_reports)

    def unsent(self) -> list[FromAgent]:
        """What of the answers got out before it was lost."""
        items = self.host.unsent()
        return [Output(items=tuple(items))] if items else []

    # ---- requests

    def _produced(self, items: list[Item], now: float) -> list[FromAgent]:
        released = [self._sequences.pop(item.id) for item in items if isinstance(item, Ended)]
        return self._sent(self._session.produced(tuple(items), released, now), now)

    def _sent(self, decisions: list[Decision], now: float) -> list[FromAgent]:
        """Carry out what its session decided; what it sends."""
        messages: list[FromAgent] = []
        for decision in decisions:
            match decision:
                case Send(message):
                    messages.append(message)
                case StartGeneration(id, start):
                    self._sequences[start.id] = id
                    self.host.start(start, now)
                case Obey(Assign() as order):
                    messages += self._obey(order, now)
                case MarkConnected() | KeepSecret():
                    pass
                case _:
                    raise RuntimeError(f"nobody simulates {decision}")
        return messages

    # ---- models

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests."""
        return self._phase == "serving"

    @property
    def _desired(self) -> str | None:
        """The model that it was assigned."""
        assignment = None if self._order is None else self._order.assignment
        return None if assignment is None else assignment.name

    def _obey(self, order: Assign, now: float) -> list[FromAgent]:
        self._order = order
        if self._desired == self.serves:
            self._phase = "waiting" if self.serves is None else "serving"
        elif self.host.running:
            self._phase = "draining"
        else:
            return self._load(now)
        return self._tell(now)

    def _load(self, now: float) -> list[FromAgent]:
        """It has nothing to do: what it served is unloaded, and what was assigned is loaded."""
        self.serves = None
        self._phase = "waiting" if self._desired is None else "loading"
        self._loaded_at = None if self._desired is None else now + self._load_seconds
        return self._tell(now)

    def _loaded(self, now: float) -> list[FromAgent]:
        self._loaded_at = None
        self.serves, self._phase = self._desired, "serving"
        self._num_computed_before = self.num_computed
        self.host = _host(self._kind, now)
        return self._tell(now)

    def _tell(self, now: float) -> list[FromAgent]:
        return self._sent(self._session.status_changed(self._status(), now), now)

    def _status(self) -> Status:
        order = self._order
        model = model_info(self.serves) if self.is_ready and self.serves else None
        work = None
        if order is not None:
            work = Work(revision=order.revision, assignment=order.assignment, phase=self._phase)
        return Status(slots=self._kind.slots, accepting=True, model=model, work=work)


def _host(kind: HostKind, now: float) -> FluidHost:
    return FluidHost(kind.speeds, Cache(kind.cache), _now=now)


CONTEXT = 2**20
"""Tokens, more than any request of the traces has: these hosts refuse none."""


def model_info(name: str) -> ModelInfo:
    """A model of which all agents have the same files."""
    return ModelInfo(
        name=name,
        architecture="none",
        parameters=0,
        size_bytes=0,
        context_size=CONTEXT,
        fingerprint=f"simulated {name}",
    )
