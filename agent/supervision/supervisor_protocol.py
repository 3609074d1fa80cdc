"""The protocol of supervisor and engine process: JSON, one message per line.

The supervisor writes orders to the engine process's standard input, `Begin` first; the engine
process writes reports to its standard output. The end of the orders means that the supervisor is
gone, and the engine process must end at once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from ...shared.inference import AgentId
from ...shared.inference.adapters import AdapterName
from ...shared.messages import FitRead, Issue
from ...shared.models.assignments import Assignment, HostFacts, MemoryParts, Work
from ...shared.models.engine_options import NumThreads
from ...shared.reports.log_lines import LogLines
from ...shared.reports.model_info import ModelInfo
from ...shared.strict import LAZY, STRICT
from ..json_lines import Lines
from ..link.balancer_secrets import BalancerSecrets
from ..link.decisions import HostOrder
from ..settings import AgentSettings

# ---- orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Load the model of `settings`. All engine processes of a place have the same `agent_id`.

    All engine processes of a host have the same `host`. `assignment` is the balancers' order,
    beyond `settings`; `None` for a pinned agent. `beside` is the memory that other engines of this
    host use. `log` has the supervisor's latest lines, such as the reason for an earlier crash.
    """

    __pydantic_config__ = STRICT
    type: Literal["begin"] = "begin"
    agent_id: AgentId
    settings: AgentSettings
    host: AgentId | None = None
    facts: HostFacts = field(default_factory=HostFacts)
    assignment: Assignment | None = None
    beside: MemoryParts = ()
    log: LogLines = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Connect to the balancers with this status. `takes_over`: replace the agent's connections.

    If this comes after `Stop`, while requests still run, accept new requests again over new
    connections.
    """

    __pydantic_config__ = STRICT
    type: Literal["dial"] = "dial"
    takes_over: bool = False
    issues: tuple[Issue, ...] = ()
    work: Work | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportStatus:
    """From now on, send these issues and the assignment's progress to balancers.

    While the engine `is_stalled`, the agent accepts no new requests.
    """

    __pydantic_config__ = STRICT
    type: Literal["tell"] = "tell"
    issues: tuple[Issue, ...] = ()
    work: Work | None = None
    is_stalled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Serve this assignment without a reload; answered by `Changed`.

    `adapter` has the assignment's adapters in the form of the setting.
    """

    __pydantic_config__ = STRICT
    type: Literal["change"] = "change"
    assignment: Assignment
    adapter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareThreads:
    """Compute with this many threads from the next step on, since other engines started or ended.

    `threads_batch` applies to steps with more than one token.
    """

    __pydantic_config__ = STRICT
    type: Literal["share_threads"] = "share_threads"
    threads: NumThreads
    threads_batch: NumThreads


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Finish running requests within `drain_timeout` seconds, or `--drain-timeout`, then exit."""

    __pydantic_config__ = STRICT
    type: Literal["stop"] = "stop"
    drain_timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """Open the log again. Certificates and key files are read at each dial anyway."""

    __pydantic_config__ = STRICT
    type: Literal["refresh"] = "refresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """New lines of the supervisor's log, which operators see together with the engine's."""

    __pydantic_config__ = STRICT
    type: Literal["logged"] = "logged"
    lines: LogLines


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFound:
    """The answer to a balancer's `ReadFit`; the connection with that question sends the answer."""

    __pydantic_config__ = STRICT
    type: Literal["fit_found"] = "fit_found"
    read: FitRead


# ---- both


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretGiven:
    """A balancer gave this agent a secret, which any process shows at its next dial."""

    __pydantic_config__ = STRICT
    type: Literal["secret_given"] = "secret_given"
    balancer: str
    secret: str = field(repr=False)


# ---- reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The model is loaded; the engine process waits for `Dial` before it dials any balancer.

    A process without a `model` forwards to a server that is not reachable yet. `left_out` names
    adapters that the process could not load; `issues` say why.
    """

    __pydantic_config__ = STRICT
    type: Literal["loaded"] = "loaded"
    model: ModelInfo | None = None
    left_out: tuple[AdapterName, ...] = ()
    issues: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A balancer has accepted the agent."""

    __pydantic_config__ = STRICT
    type: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The number of the step that the engine computes, or none; sent repeatedly."""

    __pydantic_config__ = STRICT
    type: Literal["alive"] = "alive"
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """A balancer's order for this host, for the supervisor to decide about."""

    __pydantic_config__ = STRICT
    type: Literal["ordered"] = "ordered"
    order: Annotated[HostOrder, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The engine serves `assignment`; or it refused it with `issue`, and serves as before."""

    __pydantic_config__ = STRICT
    type: Literal["changed"] = "changed"
    assignment: Assignment
    issue: Issue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The last report: why the process cannot continue, in one line."""

    __pydantic_config__ = STRICT
    type: Literal["failed"] = "failed"
    reason: str


Order = Annotated[
    Begin
    | Dial
    | ReportStatus
    | Change
    | ShareThreads
    | Stop
    | Refresh
    | Logged
    | FitFound
    | SecretGiven,
    Field(discriminator="type"),
]
Report = Annotated[
    Loaded | Ready | Alive | Ordered | Changed | Failed | SecretGiven, Field(discriminator="type")
]

_order: TypeAdapter[Order] = TypeAdapter(Order, config=LAZY)
_report: TypeAdapter[Report] = TypeAdapter(Report, config=LAZY)


ORDERS = Lines(_order)
REPORTS = Lines(_report)


class SupervisorChannel:
    """The engine process's end of the protocol: its first order, waiting orders, and reports.

    `drain_timeout` comes from the last `Stop`. All processes of the agent share `secrets`. `step`
    returns the number of the step that the engine computes, if any. `on_fit_found` receives the
    answer about how the host would load a model.
    """

    def __init__(self, begin: Begin, report: Callable[[Report], None]) -> None:
        self.begin = begin
        self.report = report
        self.dials: asyncio.Queue[Dial] = asyncio.Queue()
        self.orders: asyncio.Queue[ReportStatus | Change | ShareThreads] = asyncio.Queue()
        self.drain_timeout: float | None = None
        self.step: Callable[[], int | None] = lambda: None
        self.on_fit_found: Callable[[FitRead], None] = lambda read: None
        self.secrets = BalancerSecrets(self._pass_on)

    def _pass_on(self, balancer: str, secret: str) -> None:
        self.report(SecretGiven(balancer=balancer, secret=secret))
