"""The types of the management API's answers. The OpenAPI document is made from these types."""

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
    """Marks a field that is sent only together with changes of other fields."""


def fields_of(entry: type) -> dict[str, Any]:
    """Return the types of the fields of `entry` by name."""
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
    """Slots: `total` as reported by agents, `busy` as counted by all balancers."""

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
    """A GPU of an agent's host, or the host itself as `CPU`. `name` has the form for `--device`.

    `models` are the loaded models that use memory of the device. A figure is null if it was not
    measured yet, or if the system does not report it. Memory is in bytes.
    """

    OF = statistics.DeviceMemory
    KNOWN = ("memory.total",)
    name: str
    kind: DeviceKind
    models: list[MemoryOfModel]


class PastDevice(Answer):
    """A device's figures at `times`, oldest first.

    `times` are in seconds since 1970; `memory_used` is in bytes.
    """

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
    """Tokens per second of an agent; null before the first measurement."""

    tokens_total: Count
    tokens_per_second: float | None


class Work(TypedDict):
    """An agent's progress with its assigned model.

    `progress` is the completed share of the phase. `memory_needed` is in bytes, if known.
    """

    model: str
    phase: Phase
    progress: float | None
    memory_needed: Count | None


class ServedModel(TypedDict):
    """A model that an agent serves or loads. A model that is not loaded yet has no tasks.

    `memory_needed` is in bytes, if known. `average_sequences` is the average number of requests
    that the engine computed at once; null before the first request.
    """

    name: str
    state: AgentState
    slots: Slots
    tasks: tuple[Task, ...]
    memory_needed: Count | None
    average_sequences: float | None


class Agent(Answer):
    """One agent. `model` is the model that the agent has served longest.

    `download` is the file that the agent is downloading. `models` are all models that the agent
    serves. Slots and numbers are sums over all models.
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
    """A request that has not ended. `agent` is the id of the agent that runs the request.

    `caller` is the name of the request's access key, or `anonymous`. `moves` is the number of
    moves to another agent. `position` is the place, from 1, among the waiting requests for the
    same agents; null for queries and for requests that do not wait. `balancer` is the name of the
    request's balancer; null if there is only one balancer.
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
    """A request with its expected wait; null for queries and for requests that do not wait.

    `for` names the reason for the wait. `seconds_left` is an estimate. `expected_start` is the
    same estimate as a time in seconds since 1970.
    """

    seconds_left: float | None
    expected_start: float | None


class About(TypedDict):
    """The balancer. Clients use the address `public_url`.

    If `public_url` is null, clients use the host name of the management port, with
    `inference_port`. If `is_lasting`, the desired state, keys, usage and history survive the end
    of the balancer (`--state`).
    """

    version: str
    inference_port: int | None
    public_url: str | None
    is_lasting: bool
    issues: tuple[Issue, ...]


class Balancer(TypedDict):
    """A balancer. `is_here` is true for the balancer that answers.

    Clients use the address `url`, if known. Times are in seconds since 1970; `since` is null if
    unknown.
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

    `missing` names balancers that did not answer in time. Their busy slots are not counted.
    """

    agents: list[Agent]
    missing: NotRequired[list[str]]


class AgentLog(TypedDict):
    """The last lines of an agent's log, oldest first. Use `after` to request later lines."""

    lines: list[LogLine]
    after: Count


class Requests(TypedDict):
    """Requests of all balancers over one store that have not ended, oldest first.

    `total` also counts requests that are not listed. `missing` names balancers that did not answer
    in time. Their requests are left out.
    """

    requests: list[ListedRequest]
    total: Count
    missing: NotRequired[list[str]]


class Cancelled(TypedDict):
    """The answer to a cancellation. The request ends soon after."""

    id: RequestId


class FleetFields(Answer):
    """Totals of the fleet. `at` is the time of the event, in seconds since 1970.

    `moves_total` counts moves of requests to other agents since the balancer's start.
    """

    OF = FleetTotals
    at: float
    slots: Slots


class Clocks(TypedDict):
    """The names of fields that grow by one each second without an event."""

    agents: list[str]
    requests: list[str]


class Trouble(TypedDict):
    """A fault that people should see first, other than an agent's issue.

    `kind` is `model` for a model that failed, has no agent or has issues, `hosts` for lost hosts,
    `balancer` for an issue of the balancer, and `refused` for callers that are refused repeatedly.
    `name` is the name of the model, the code of the issue, or the door; null for several models or
    hosts. `num` is the number of models, hosts or callers. `message` continues a sentence that
    begins with the model's name or the number.
    """

    kind: Literal["model", "hosts", "balancer", "refused"]
    name: str | None
    num: Count
    message: str
    hint: str


class Snapshot(FleetFields):
    """The event `snapshot`: all agents, and the oldest requests.

    No event reports the passing of time. Readers add the passed time to the fields named in
    `clocks`.
    """

    clocks: Clocks
    troubles: list[Trouble]
    agents: list[Agent]
    requests: list[Request]


class Delta(FleetFields):
    """The event `delta`: changes since the last event. Empty members are left out.

    If troubles changed, `troubles` has all troubles. An entry has an `id` and the changed fields.
    Times in entries are as of `at`. Places of waiting requests are sent once a second.
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
