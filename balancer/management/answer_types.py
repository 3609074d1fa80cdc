"""Types of the management API's answers; the OpenAPI document is made of them."""

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
    """Marks a field that is sent along with others, and is no reason to send anything."""


def fields_of(entry: type) -> dict[str, Any]:
    """Return the types of the fields of an entry by name."""
    return (
        entry.fields() if issubclass(entry, Answer) else get_type_hints(entry, include_extras=True)
    )


def marked(entry: type, *marks: type) -> frozenset[str]:
    """The names of the fields of `entry` that have one of `marks`."""
    fields = fields_of(entry)
    return frozenset(
        name for name, field in fields.items() if set(marks).intersection(get_args(field)[1:])
    )


Entry = TypeVar("Entry")


class Changes(dict[str, Any], Generic[Entry]):
    """An entry that is new, with all of its fields, or its `id` and the fields that changed."""

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
    """`total` is what the agent reports, `busy` what the balancers count, all of them."""

    total: Count
    busy: Count


class Statistics(Answer):
    """An engine's work since its model was loaded. A rate is null before the first step."""

    OF = statistics.Statistics


class MemoryOfModel(TypedDict):
    """Bytes of a device's memory that a model takes."""

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
    """Devices over the last ten minutes, with at most one value in `step` seconds."""

    step: float
    devices: list[PastDevice]


class AgentThroughput(TypedDict):
    """Throughput; null until it has been measured."""

    tokens_total: Count
    tokens_per_second: float | None


class Work(TypedDict):
    """An agent's progress with the model that it has to serve.

    `progress` is the share of the phase that is done. `memory_needed` in bytes, if it is known.
    """

    model: str
    phase: Phase
    progress: float | None
    memory_needed: Count | None


class ServedModel(TypedDict):
    """A model that an agent serves or is about to: then it has no tasks yet.

    `memory_needed` in bytes, where it is known. `average_sequences` is how many requests its engine
    computed at once; null before there were any.
    """

    name: str
    state: AgentState
    slots: Slots
    tasks: tuple[Task, ...]
    memory_needed: Count | None
    average_sequences: float | None


class Agent(Answer):
    """One agent. `download` is the file that it fetches. `models` are all that it serves.

    Slots and numbers are of all of them; `model` is the one that it has served for longest.
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
    """A request that has not ended; `agent` is the id of the agent that it runs on.

    `caller` is the name of its access key, or `anonymous`. `moves` is how often it moved to another
    agent. `position` counts from 1 those that wait and that the same agents could start; null of
    any that does not wait, and of queries. `balancer` is the name of the one that has it, and where
    its place counts, if there are several; else null.
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
    """A request with what it can expect while it waits; null otherwise, and for queries.

    `for` is what it waits for. `seconds_left` is an estimate, and `expected_start` the same in
    seconds since 1970.
    """

    seconds_left: float | None
    expected_start: float | None


class About(TypedDict):
    """The balancer. Clients reach it at `public_url`; where that is null, at the host by which the
    management port was called, and `inference_port`. What is desired, keys, usage and history
    outlive one that `is_lasting` (`--state`)."""

    version: str
    inference_port: int | None
    public_url: str | None
    is_lasting: bool
    issues: tuple[Issue, ...]


class Balancer(TypedDict):
    """A balancer; `is_here` is true of the one that answers. Clients reach it at `url`, if known.

    Times in seconds since 1970; `since` is null where it is not known.
    """

    name: str
    url: str | None
    version: str
    leads: bool
    is_here: bool
    since: float | None
    last_heartbeat: float


class Balancers(TypedDict):
    """All balancers over one store that live."""

    balancers: list[Balancer]


class Agents(TypedDict):
    """All connected agents.

    `missing` names balancers that did not answer in time: slots that they took are not counted.
    """

    agents: list[Agent]
    missing: NotRequired[list[str]]


class AgentLog(TypedDict):
    """The last lines of an agent's log, oldest first; `after` asks for those that follow."""

    lines: list[LogLine]
    after: Count


class Requests(TypedDict):
    """Requests that have not ended, oldest first, of all balancers over one store.

    `total` counts all, also those not listed. `missing` names balancers that did not answer in
    time: theirs are left out.
    """

    requests: list[ListedRequest]
    total: Count
    missing: NotRequired[list[str]]


class Cancelled(TypedDict):
    """The request ends shortly."""

    id: RequestId


class FleetFields(Answer):
    """The fleet in a few numbers. `at`: seconds since 1970, when the event was made.

    `moves_total`: how often a request moved to another agent since the balancer started.
    """

    OF = FleetTotals
    at: float
    slots: Slots


class Clocks(TypedDict):
    """Names of fields that go on by themselves, a second each second."""

    agents: list[str]
    requests: list[str]


class Trouble(TypedDict):
    """A fault other than an agent's issue, which people should see first.

    `model`: it failed, nobody serves it, or it has issues; `hosts`: they are lost; `balancer`: an
    issue of its own; `refused`: callers go on though they are refused. `name` is the model's, the
    issue's code or the door; null of several. `num` is how many models, hosts or callers there
    are. `message` goes on after the model's name or the number.
    """

    kind: Literal["model", "hosts", "balancer", "refused"]
    name: str | None
    num: Count
    message: str
    hint: str


class Snapshot(FleetFields):
    """The event `snapshot`: all agents, and the oldest requests.

    No event says that time has passed: readers add it to the fields that `clocks` names.
    """

    clocks: Clocks
    troubles: list[Trouble]
    agents: list[Agent]
    requests: list[Request]


class Delta(FleetFields):
    """The event `delta`: changes since the last event. Empty members are left out.

    `troubles` are there, all of them, if they are different.

    Entries have an `id` and the fields that changed. Their times are as of `at`. Places of requests
    that go on waiting are sent once a second.
    """

    OPTIONAL = ("troubles", "agents", "agents_left", "requests", "requests_ended")
    troubles: list[Trouble]
    agents: list[Changes[Agent]]
    agents_left: list[AgentId]
    requests: list[Changes[Request]]
    requests_ended: list[RequestId]


class ThroughputPoint(TypedDict):
    """The event `throughput`, each second. Agents that generated nothing are left out."""

    seconds: float
    tokens_per_second: float
    agents: dict[AgentId, float]
    queue_depth: Count
    slots_busy: Count


Event = Snapshot | Delta | ThroughputPoint
