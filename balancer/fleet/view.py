"""Views of the fleet for people and programs: plain values, computed when asked for."""

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

    Agents may differ in what they say of a model; `info` is the word of one that serves it. Of a
    model that is desired and that no agent had yet, it has the name alone and no tasks.
    `waiting` and `failed` are models that are desired. `progress` is the share of loading that
    is done, where that is known.
    """

    info: ModelInfo
    status: ModelStatus
    progress: float | None = None
    issues: tuple[Issue, ...] = ()


SLOTS = Family("slots", "Slots of the connected agents.", label="state")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsView:
    """`total` is the agent's word, `busy` the balancer's count; after a cut, busy may be more."""

    total: Annotated[
        Count, Figure("slots.total", "its slots, of all its models", metric=SLOTS, label="total")
    ]
    busy: Annotated[
        Count, Figure("slots.busy", "slots that have a request", metric=SLOTS, label="busy")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedView:
    """A model that an agent serves, or is about to, with slots of its own.

    `info` is there once the engine has reported it. `needed` is the memory in bytes that it takes,
    estimated from its file. `average_running` is that of its engine's statistics.
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
    """One connected agent. `num_tokens` were delivered from it since it connected.

    `statistics` are the last that its engine reported. A host that serves several `models` is seen
    as one agent: slots and numbers are of all of them, `model` is the one that it has served for
    longest.
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
    """An operator wants an agent to get no new work. `first` is the id that it had then."""

    first: AgentId
    name: str


@dataclass(frozen=True, slots=True)
class SharedCordon:
    """A cordon as the store has it; what runs there moves in `within` seconds."""

    cordon: Cordon
    within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """One request that has not ended. `agent` is the id of the one it runs on.

    `caller` is the name of its key's holder. `waited_seconds` is the time without a slot so far,
    `age_seconds` the time since acceptance; `moves` is how often it moved to another agent.
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

    `num_warm` requests went to agents that were believed to hold at least half of their prompts,
    `num_cold` did not. `num_waited` waited for one agent alone, and got it or, `num_gave_up`, took
    another in the end. `num_beliefs` pairs of a prompt's beginning and an agent are remembered,
    and the last agents of `num_cache_keys` keys. Of `num_evicted` pairs agents said that they are
    gone. `num_fetching` were asked to fetch a prefix from another agent.
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
        """Requests that got the agent for which they waited."""
        return self.num_waited - self.num_gave_up


@dataclass(frozen=True, slots=True)
class ForegroundView:
    """Requests above the class `batch`: how many are here, seconds since the last one came."""

    num_here: int = 0
    seconds_since: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """The rest of a minute's limit; the whole limit after `reset_after` seconds."""

    limit: int
    remaining: int
    reset_after: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A caller's limits and their rest; `None` if it has no limit."""

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

    `is_ready`: some agent that takes work has a slot, free or not, or embeds. `tokens_total` only
    grows, as does `items_ignored`: what agents said of requests that were not with them (any more).
    `num_requests` have not ended, queries among them. Parts are those of queries: that no agent has
    yet, and that agents have. Of `num_models`, which are known, `num_models_unloaded` are only
    remembered. `tokens_kept` are those of unended answers, kept so that another agent can go on.
    `moves_total`: how often a request moved to another agent. `bad_messages` ended a link each.
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
        """Models that an agent serves or loads."""
        return self.num_models - self.num_models_unloaded


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDelta:
    """The changes from one revision to `revision`, at a cost of the size of the change.

    `agents` are new or look different; times in them are as of now. Those that gave tokens alone
    are not among them. An agent that came and went in between is only among those that are gone. Of
    requests it says nothing, but for the revision.
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
