"""Types of the management API's answers, from which the OpenAPI document is made."""

from types import GenericAlias
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar, get_args, get_type_hints

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from ...shared.inference import AgentId, Count, PriorityClass, RequestId, WaitsFor
from ...shared.messages import Issue
from ...shared.models.assignments import Download, HostFacts, Phase
from ...shared.reports import statistics
from ...shared.reports.figures import Clock
from ...shared.reports.log_lines import LogLine
from ...shared.reports.model_info import ModelInfo, Task
from ...shared.reports.statistics import DeviceKind
from ..fleet.device_past import PAST, name_of_past
from ..fleet.view import AgentFigures, AgentState, FleetTotals, RequestState
from .figures import Answer


class Aside:
    """Marks a field that is sent along with others; its change alone is not sent."""


def fields_of(entry: type) -> dict[str, Any]:
    """Return the types of the fields of an entry by name."""
    return (
        entry.fields() if issubclass(entry, Answer) else get_type_hints(entry, include_extras=True)
    )


def marked(entry: type, *marks: type) -> frozenset[str]:
    """Return the names of the fields of `entry` that have one of `marks`."""
    fields = fields_of(entry)
    return frozenset(
        name for name, field in fields.items() if set(marks).intersection(get_args(field)[1:])
    )


Entry = TypeVar("Entry")


class Changes(dict[str, Any], Generic[Entry]):
    """The fields of a new entry, or the `id` and the changed fields of a known entry."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        [entry] = get_args(source)
        fields = {
            name: field if name == "id" else NotRequired[field]
            for name, field in fields_of(entry).items()
        }
        described: Any = TypedDict(f"{entry.__name__}Change", fields)  # type: ignore[misc]
        described.__doc__ = cls.__doc__
        return handler.generate_schema(described)


class Slots(TypedDict):
    """Slots: `total` as the agent reports, `busy` as all balancers count."""

    total: Count
    busy: Count


class Statistics(Answer):
    """An engine's work since its model was loaded. A rate is null before the first step."""

    OF = statistics.Statistics


class MemoryOfModel(TypedDict):
    """Bytes of a device's memory that a model uses."""

    name: str
    bytes: Count


class AgentDevice(Answer):
    """A GPU of an agent's host, or as `CPU` the host itself. `name` is as `--device` takes it.

    `models` are those that take some of its memory, as they were loaded. A figure is null if it
    was not measured yet, or if the system does not report it. Memory is in bytes.
    """

    OF = statistics.DeviceMemory
    KNOWN = ("memory.total",)
    name: str
    kind: DeviceKind
    models: list[MemoryOfModel]


class PastDevice(Answer):
    """A device's figures at `times`, seconds since 1970, oldest first. `memory_used` in bytes."""

    name: str
    kind: DeviceKind
    times: list[float]

    @classmethod
    def figures(cls) -> dict[str, Any]:
        """Return the types of the figures by name."""
        return {name_of_past(found): GenericAlias(list, (found.type,)) for found in PAST}


class PastDevices(TypedDict):
    """Devices over the last ten minutes, with at most one value per `step` seconds."""

    step: float
    devices: list[PastDevice]


class AgentThroughput(TypedDict):
    """Tokens per second of an agent; null until it was measured."""

    tokens_total: Count
    tokens_per_second: float | None


class Work(TypedDict):
    """An agent's progress with the model that it has to serve.

    `progress` is the share of the phase that is done. `memory_needed` is in bytes, if known.
    """

    model: str
    phase: Phase
    progress: float | None
    memory_needed: Count | None


class ServedModel(TypedDict):
    """A model that an agent serves, or is about to serve; then it has no tasks yet.

    `memory_needed` is in bytes, if known. `average_sequences` is the average number of requests
    that its engine computed at once; null before there were any.
    """

    name: str
    state: AgentState
    slots: Slots
    tasks: tuple[Task, ...]
    memory_needed: Count | None
    average_sequences: float | None


class Agent(Answer):
    """One agent. `download` is the file that it downloads. `models` are all models that it serves.

    Slots and numbers are those of all models; `model` is the one served for longest.
    """

    OF = AgentFigures
    id: AgentId
    name: str
    labels: dict[str, str]
    version: str
    state: AgentState
    slots: Slots
    model: ModelInfo | None
    models: list[ServedModel]
    issues: tuple[Issue, ...]
    download: Download | None
    work: Work | None
    facts: HostFacts
    devices: list[AgentDevice]
    throughput: Annotated[AgentThroughput, Aside]
    statistics: Statistics | None


class Request(TypedDict):
    """A request that has not ended; `agent` is the id of its agent.

    `caller` is the name of its access key, or `anonymous`. `moves` is how often it moved to another
    agent. `position` is its place, from 1, among the waiting requests that the same agents could
    start; null for requests that do not wait, and for queries. `balancer` is the name of the
    balancer that has it, if there are several; else null.
    """

    id: RequestId
    state: RequestState
    model: str | None
    agent: AgentId | None
    waited_seconds: Annotated[float, Aside]
    age_seconds: Annotated[float, Clock]
    num_tokens: Count
    priority: int
    priority_class: PriorityClass
    caller: str
    moves: Count
    position: Count | None
    balancer: str | None


_For = TypedDict("_For", {"for": WaitsFor | None})


class ListedRequest(Request, _For):
    """A request with its expected wait; null if it does not wait, and for queries.

    `for` is what it waits for. `seconds_left` is an estimate, and `expected_start` the same as a
    time in seconds since 1970.
    """

    seconds_left: float | None
    expected_start: float | None


class About(TypedDict):
    """The balancer. Clients reach it at `public_url`.

    If `public_url` is null, clients use the host by which the management port was called, with
    `inference_port`. The desired state, keys, usage and history of a balancer that `is_lasting`
    survive its end (`--state`).
    """

    version: str
    inference_port: int | None
    public_url: str | None
    is_lasting: bool
    issues: tuple[Issue, ...]


class Balancer(TypedDict):
    """A balancer; `is_here` is true for the balancer that answers.

    Clients reach it at `url`, if known.

    Times are in seconds since 1970; `since` is null if unknown.
    """

    name: str
    url: str | None
    version: str
    leads: bool
    is_here: bool
    since: float | None
    last_heartbeat: float


class Balancers(TypedDict):
    """All live balancers over one store."""

    balancers: list[Balancer]


class Agents(TypedDict):
    """All connected agents.

    `missing` names balancers that did not answer in time: the slots that they took are not counted.
    """

    agents: list[Agent]
    missing: NotRequired[list[str]]


class AgentLog(TypedDict):
    """The last lines of an agent's log, oldest first; `after` requests later lines."""

    lines: list[LogLine]
    after: Count


class Requests(TypedDict):
    """Requests that have not ended, of all balancers over one store, oldest first.

    `total` counts all, including requests that are not listed. `missing` names balancers that did
    not answer in time: their requests are left out.
    """

    requests: list[ListedRequest]
    total: Count
    missing: NotRequired[list[str]]


class Cancelled(TypedDict):
    """The answer to a cancellation: the request ends shortly."""

    id: RequestId


class FleetFields(Answer):
    """The fleet in a few numbers. `at` is when the event was made, in seconds since 1970.

    `moves_total` counts moves of requests to other agents since the balancer's start.
    """

    OF = FleetTotals
    at: float
    slots: Slots


class Clocks(TypedDict):
    """Names of fields that advance by themselves, by one a second."""

    agents: list[str]
    requests: list[str]


class Trouble(TypedDict):
    """A fault besides agents' issues that people should see first.

    `model`: it failed, nobody serves it, or it has issues; `hosts`: they are lost; `balancer`: an
    issue of its own; `refused`: callers are refused again and again. `name` is the name of the
    model, the code of the issue, or the door; null for several. `num` is the number of models,
    hosts or callers. `message` continues a sentence that begins with the model's name or the
    number.
    """

    kind: Literal["model", "hosts", "balancer", "refused"]
    name: str | None
    num: Count
    message: str
    hint: str


class Snapshot(FleetFields):
    """The event `snapshot`: all agents, and the oldest requests.

    No event says that time has passed: readers add it to the fields named in `clocks`.
    """

    clocks: Clocks
    troubles: list[Trouble]
    agents: list[Agent]
    requests: list[Request]


class Delta(FleetFields):
    """The event `delta`: changes since the last event. Empty members are left out.

    `troubles` has all troubles, if they changed. Entries have an `id` and the fields that changed.
    Their times are as of `at`. Places of waiting requests are sent once a second.
    """

    OPTIONAL = ("troubles", "agents", "agents_left", "requests", "requests_ended")
    troubles: list[Trouble]
    agents: list[Changes[Agent]]
    agents_left: list[AgentId]
    requests: list[Changes[Request]]
    requests_ended: list[RequestId]


class ThroughputPoint(TypedDict):
    """The event `throughput`, once a second. Agents that generated nothing are left out."""

    seconds: float
    tokens_per_second: float
    agents: dict[AgentId, float]
    queue_depth: Count
    slots_busy: Count


Event = Snapshot | Delta | ThroughputPoint
