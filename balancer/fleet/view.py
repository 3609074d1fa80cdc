"""Views of the fleet for people and programs: plain values, computed on request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from ...shared.inference import AgentId, Count, PriorityClass, RequestId
from ...shared.messages import Issue
from ...shared.models.assignments import HostFacts, Work
from ...shared.reports.figures import Clock, Family, Figure, Line
from ...shared.reports.model_info import ModelInfo
from ...shared.reports.statistics import Statistics

AgentState = Literal["ready", "loading", "draining", "drained", "idle", "failed"]
"""`draining` takes nothing new and has requests, `drained` has none; `idle` has no model."""

Departure = Literal["drained", "stopped", "lost"]
"""Why an agent went: an operator had drained it, it ended in good order, or it did neither."""

ModelStatus = Literal["loaded", "loading", "waiting", "failed", "unloaded"]
RequestState = Literal["queued", "assigned", "streaming"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """A known model: an agent serves it (`loaded`), is about to (`loading`), or did a while ago.

    Agents may report different facts; `info` comes from an agent that serves the model. For a
    desired model that no agent has had, it has only the name and no tasks. `waiting` and `failed`
    are for desired models. `progress` is the share of the loading that is done, if known.
    """

    info: ModelInfo
    status: ModelStatus
    progress: float | None = None
    issues: tuple[Issue, ...] = ()


SLOTS = Family("slots", "Slots of the connected agents.", label="state")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsView:
    """Slots: `total` as the agent reports, `busy` as the balancer counts.

    After a reduction of slots, `busy` may be larger than `total`.
    """

    total: Annotated[
        Count, Figure("slots.total", "its slots, of all its models", metric=SLOTS, label="total")
    ]
    busy: Annotated[
        Count, Figure("slots.busy", "slots that have a request", metric=SLOTS, label="busy")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedView:
    """A model that an agent serves, or is about to serve, with its slots.

    `info` is known once the engine has reported it. `needed` is its memory in bytes, estimated from
    its file. `average_running` comes from the statistics of its engine.
    """

    name: str
    state: AgentState
    slots: SlotsView
    info: ModelInfo | None = None
    needed: int | None = None
    average_running: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFigures:
    """The balancer's figures of an agent; its metrics are named `arriero_…` and have its name."""

    slots: SlotsView
    connected_seconds: Annotated[
        float,
        Figure(
            "connected_seconds",
            "age of its connection",
            digits=3,
            line=Line(title="Connected for", words="{connected_seconds|duration}"),
        ),
        Clock,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView(AgentFigures):
    """One connected agent. `num_tokens` counts the tokens delivered from it since it connected.

    `statistics` are its engine's last report. A host that serves several `models` is seen as one
    agent: slots and numbers are those of all models, and `model` is the one served for longest.
    """

    id: AgentId
    name: str
    labels: dict[str, str]
    version: str
    state: AgentState
    model: ModelInfo | None
    issues: tuple[Issue, ...]
    statistics: Statistics | None
    num_tokens: int
    facts: HostFacts = field(default_factory=HostFacts)
    work: Work | None = None
    models: tuple[ServedView, ...] = ()


@dataclass(frozen=True, slots=True)
class Cordon:
    """An agent that an operator wants to get no new work.

    `first` is the agent's id at that time.
    """

    first: AgentId
    name: str


@dataclass(frozen=True, slots=True)
class SharedCordon:
    """A cordon as the store has it; requests on the agent move in `within` seconds."""

    cordon: Cordon
    within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """One request that has not ended. `agent` is the id of its agent.

    `caller` is the name of its key's holder. `waited_seconds` is the time without a slot so far,
    and `age_seconds` the time since acceptance; `moves` is how often it moved to another agent.
    """

    id: RequestId
    state: RequestState
    model: str | None
    agent: AgentId | None
    waited_seconds: float
    age_seconds: float
    num_tokens: int
    priority: int
    caller: str
    moves: int = 0


ROUTED = Family(
    "routed_requests",
    "Requests that agents were given: warm where the agent was believed to hold at least half "
    "of the prompt in its cache.",
    label="prefix",
    is_counter=True,
)
WAITS = Family(
    "routing_waits",
    "Requests that waited for the agent that holds their prompt: it served them, or another "
    "did when waiting no longer paid.",
    label="outcome",
    is_counter=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingView:
    """Statistics of the choice of agents so far.

    `num_warm` requests went to agents expected to have at least half of the prompt cached,
    `num_cold` did not. `num_waited` requests waited for one agent; `num_gave_up` of these took
    another in the end. `num_beliefs` pairs of a prefix and an agent are remembered, and the last
    agents of `num_cache_keys` cache keys. `num_evicted` expected prefixes were reported as evicted.
    `num_fetching` requests were to fetch a prefix from another agent.
    """

    num_warm: Annotated[int, Figure(metric=ROUTED, label="warm")] = 0
    num_cold: Annotated[int, Figure(metric=ROUTED, label="cold")] = 0
    num_waited: int = 0
    num_gave_up: Annotated[int, Figure(metric=WAITS, label="gave_up")] = 0
    num_evicted: Annotated[
        int,
        Figure(
            metric=Family(
                "routing_evictions",
                "Remembered beginnings of prompts that their agents said they do not hold any "
                "more.",
                is_counter=True,
            )
        ),
    ] = 0
    num_fetching: Annotated[
        int,
        Figure(
            metric=Family(
                "routing_fetches",
                "Requests whose agents were asked to fetch a prefix from another agent.",
                is_counter=True,
            )
        ),
    ] = 0
    num_beliefs: Annotated[
        int,
        Figure(
            metric=Family(
                "routing_beliefs",
                "Beginnings of prompts that are remembered, counted for each agent that "
                "computed them.",
            )
        ),
    ] = 0
    num_cache_keys: Annotated[
        int,
        Figure(
            metric=Family(
                "routing_cache_keys",
                "Cache keys of callers for which the agent of their last request is remembered.",
            )
        ),
    ] = 0

    @property
    def num_served(self) -> Annotated[int, Figure(metric=WAITS, label="served")]:
        """The number of requests that got the agent for which they waited."""
        return self.num_waited - self.num_gave_up


@dataclass(frozen=True, slots=True)
class ForegroundView:
    """The requests above the class `batch`: their number, and the seconds since the last one
    came."""

    num_here: int = 0
    seconds_since: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """How much is left of a limit per minute; all of it is free after `reset_after` seconds."""

    limit: int
    remaining: int
    reset_after: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A caller's limits and how much of each is left; `None` for no limit."""

    requests: Level | None = None
    tokens: Level | None = None


NO_STANDING = Standing()


MODELS = Family(
    "models",
    "Known models: here (an agent serves or loads it), or remembered for a while.",
    label="state",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTotals:
    """The fleet in a few numbers, at a constant cost.

    `is_ready`: an agent that takes work has a slot, free or not, or can embed. `tokens_total` only
    grows; so does `items_ignored`, which counts items of agents about requests that they did not
    have. `num_requests` counts requests and queries that have not ended. Parts are parts of
    queries, waiting or with an agent. Of the `num_models` known models, `num_models_unloaded` are
    only remembered. `tokens_kept` counts the tokens of running answers, kept so that other agents
    can continue them. `moves_total` counts moves of requests to other agents. Each of the
    `bad_messages` closed a connection.
    """

    num_agents: int
    is_ready: bool
    is_draining: Annotated[
        bool,
        Figure(
            "is_draining",
            metric=Family("draining", "1 while the balancer is shutting down."),
        ),
    ]
    queue_depth: Annotated[
        Count,
        Figure(
            "queue.depth",
            metric=Family("queue_depth", "Requests that wait for a slot."),
            summed="queue_depth",
        ),
    ]
    queue_limit: Annotated[
        Count,
        Figure(
            "queue.limit",
            metric=Family("queue_limit", "How many requests may wait at most."),
        ),
    ]
    slots_total: Annotated[Count, Figure("slots.total")]
    slots_busy: Annotated[Count, Figure("slots.busy", summed="slots_busy")]
    tokens_total: Annotated[Count, Figure("tokens_total", summed="tokens_total")]
    items_ignored: Annotated[
        int,
        Figure(
            metric=Family(
                "items_ignored",
                "Ignored items of agents: their request or query had ended, or was with "
                "another agent.",
                is_counter=True,
            )
        ),
    ]
    bad_messages: Annotated[
        int,
        Figure(
            metric=Family(
                "bad_messages",
                "Messages of agents that could not be true or handled; each ended a connection.",
                is_counter=True,
            )
        ),
    ] = 0
    num_requests: Annotated[Count, Figure("num_requests", summed="num_requests")] = 0
    parts_waiting: Annotated[
        int,
        Figure(
            metric=Family(
                "query_parts_waiting",
                "Parts of embeddings, rankings and other queries that no agent has yet.",
            )
        ),
    ] = 0
    parts_asked: Annotated[
        int,
        Figure(metric=Family("query_parts_asked", "Parts of queries that agents are working on.")),
    ] = 0
    tokens_kept: Annotated[
        int,
        Figure(
            metric=Family(
                "kept_tokens",
                "Tokens of answers under way, retained so that another agent can go on with them.",
            )
        ),
    ] = 0
    waiting_by_class: Annotated[
        Mapping[PriorityClass, Count],
        Figure(
            "queue.by_class",
            metric=Family(
                "queue_class_depth",
                "Requests that wait for a slot, by priority class.",
                label="priority_class",
            ),
            summed="by_class",
        ),
    ] = field(default_factory=dict)
    callers_waiting: Annotated[
        int,
        Figure(
            metric=Family(
                "queue_callers", "Callers of which requests wait that no agent has had yet."
            )
        ),
    ] = 0
    num_models: int = 0
    num_models_unloaded: Annotated[int, Figure(metric=MODELS, label="remembered")] = 0
    routing: RoutingView = RoutingView()
    moves_total: Annotated[Count, Figure("moves_total", summed="moves_total")] = 0

    @property
    def num_models_here(self) -> Annotated[int, Figure(metric=MODELS, label="here")]:
        """The number of models that an agent serves or loads."""
        return self.num_models - self.num_models_unloaded


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDelta:
    """The changes from one revision to `revision`, at a cost of the size of the change.

    `agents` are new or look different; their times are as of now. Agents that only sent tokens are
    left out. An agent that joined and left in between is only among those that left. Changes of
    requests show only in the revision.
    """

    revision: int
    totals: FleetTotals
    agents: tuple[AgentView, ...] = ()
    agents_left: tuple[AgentId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView(FleetTotals):
    """The whole view: the totals, all agents, and all running requests (oldest first)."""

    agents: tuple[AgentView, ...]
    requests: tuple[RequestView, ...]
