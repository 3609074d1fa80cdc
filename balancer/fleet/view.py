"""Views of the fleet for people and programs. Views are plain values."""

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
"""The state of an agent. A `draining` agent still has requests; an `idle` agent has no model."""

Departure = Literal["drained", "stopped", "lost"]
"""Why an agent left. `stopped` agents ended in good order, and `lost` agents did not."""

ModelStatus = Literal["loaded", "loading", "waiting", "failed", "unloaded"]
RequestState = Literal["queued", "assigned", "streaming"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """A known model: an agent serves it (`loaded`), is `loading` it, or served it a while ago.

    `info` comes from an agent that serves the model. If no agent has had a desired model, `info`
    has only the name and no tasks. The statuses `waiting` and `failed` are for desired models.
    `progress` is the share of the loading that is done, if known.
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
    """A model that an agent serves or loads, with its slots.

    `info` is known after the engine has reported it. `needed` is the memory in bytes, estimated
    from the model file. `average_running` comes from the engine's statistics.
    """

    name: str
    state: AgentState
    slots: SlotsView
    info: ModelInfo | None = None
    needed: int | None = None
    average_running: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFigures:
    """The balancer's figures of an agent. The names of their metrics begin with `arriero_`."""

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
    """One connected agent, or all agents of one host together.

    `num_tokens` counts the tokens delivered from the agent since it connected. `statistics` are
    its engine's last report. If a host serves several `models`, slots and numbers are sums, and
    `model` is the model served for longest.
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
    """An operator's order to give an agent no new work.

    `first` is the id that the agent had at this time.
    """

    first: AgentId
    name: str


@dataclass(frozen=True, slots=True)
class SharedCordon:
    """A cordon in the shared store. Running requests move after `within` seconds."""

    cordon: Cordon
    within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """One request that has not ended.

    `agent` is the id of its agent, and `caller` the name of its access key. `waited_seconds` is
    the time without a slot, and `age_seconds` the time since acceptance. `moves` counts its moves
    to other agents.
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
    """Statistics of the choices of agents.

    - `num_warm`: requests whose agent was expected to have at least half of the prompt cached.
    - `num_cold`: all other requests.
    - `num_waited`: requests that waited for one agent; `num_gave_up` of them took another agent.
    - `num_beliefs`: remembered pairs of a prefix and an agent.
    - `num_cache_keys`: remembered cache keys.
    - `num_evicted`: expected prefixes that agents reported as evicted.
    - `num_fetching`: requests that were to fetch a prefix from another agent.
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
        """The number of requests that waited for an agent and got its slot."""
        return self.num_waited - self.num_gave_up


@dataclass(frozen=True, slots=True)
class ForegroundView:
    """The number of requests above the class `batch`, and the seconds since the last arrival."""

    num_here: int = 0
    seconds_since: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """The rest of a limit per minute. The limit is free again after `reset_after` seconds."""

    limit: int
    remaining: int
    reset_after: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A caller's limits and the rest of each limit. `None` stands for no limit."""

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
    """Totals of the fleet, computed at a constant cost.

    `is_ready`: an agent that takes work has a slot, free or taken, or can embed. `num_requests`
    counts requests and queries that have not ended. `num_models_unloaded` models are only
    remembered.

    `tokens_total` only grows. `items_ignored` counts items of agents about requests that they did
    not have. `tokens_kept` counts the tokens of running answers, which are kept so that other
    agents can continue them. Each of the `bad_messages` closed a connection.
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
                "queue_callers", "Callers with waiting requests that no agent has started yet."
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
    """The changes from an earlier revision to `revision`.

    `agents` are the new and the changed agents, with present times. Agents that only sent tokens
    are left out. `agents_left` has every agent that left, even one that also joined since the
    earlier revision. Requests are not included: their changes only raise the revision.
    """

    revision: int
    totals: FleetTotals
    agents: tuple[AgentView, ...] = ()
    agents_left: tuple[AgentId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView(FleetTotals):
    """A view of everything: totals, all agents, and all running requests, oldest first."""

    agents: tuple[AgentView, ...]
    requests: tuple[RequestView, ...]
