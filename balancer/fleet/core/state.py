"""The state that the parts of the core share: the other cores, and a few facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....shared.errors import RequestError
from ....shared.inference import RequestId
from ..bad_messages import BadMessages
from ..change_log import ChangeLog
from ..deadlines import earliest
from ..decisions import Decision, LinkId
from ..device_past import DevicePast
from ..identities import Identities
from ..lifecycle import Lifecycle, Lives
from ..limits import Limits
from ..model_registry import ModelRegistry
from ..queries.query import QueryLifecycle
from ..queries.query_dispatcher import QueryDispatcher
from ..registry import Agent, Registry
from ..requests.request import Request
from ..requests.requests import Requests


@dataclass(slots=True)
class FleetState:
    """The shared state.

    `drained_at` is set when draining begins; once `is_closed`, no agent may join.

    `open_reads` are the unanswered reads (`ReadLog` or `ReadFit`), by link. A read is dropped with
    its link. Their number is limited where readers ask.
    """

    limits: Limits
    version: str
    changes: ChangeLog
    registry: Registry
    models: ModelRegistry
    lives: Lives
    requests: Requests
    dispatcher: QueryDispatcher
    identities: Identities
    drained_at: float | None = field(default=None, init=False)
    is_closed: bool = field(default=False, init=False)
    open_reads: dict[RequestId, LinkId] = field(default_factory=dict, init=False)
    bad_messages: BadMessages = field(default_factory=BadMessages, init=False)
    device_past: DevicePast = field(default_factory=DevicePast, init=False)
    tokens_total: int = field(default=0, init=False)
    items_ignored: int = field(default=0, init=False)

    @property
    def is_draining(self) -> bool:
        """Whether the balancer shuts down and accepts no new requests."""
        return self.drained_at is not None

    @property
    def is_idle(self) -> bool:
        """Whether every accepted request and query has ended."""
        return len(self.lives) == 0

    def next_deadline(self) -> float | None:
        """Return the first of all deadlines.

        Nothing may be due then, because deadlines move later.
        """
        if self.is_closed:
            return None
        return earliest(
            self.lives.next_deadline(),
            self.requests.next_deadline(),
            self.registry.next_deadline(),
            self.models.next_deadline(),
            None if self.drained_at is None or self.is_idle else self.drained_at,
        )

    def end(self, errors: Mapping[Lifecycle, RequestError], now: float) -> list[Decision]:
        """End requests and queries, so that none of them starts in the slot of another."""
        requests = {each: errors[each] for each in errors if isinstance(each, Request)}
        queries = {each: errors[each] for each in errors if isinstance(each, QueryLifecycle)}
        return [*self.requests.end(requests, now), *self.dispatcher.end(queries, now)]

    def num_running_on(self, agent: Agent) -> int:
        """Return the number of requests on this process of an agent."""
        return self.requests.dispatch.num_running_on(agent.link)

    def num_busy_on(self, agent: Agent) -> int:
        """Return the number of requests on an agent, including its former processes."""
        links = self.registry.links_of(agent.hello.agent_id)
        return sum(map(self.requests.dispatch.num_running_on, links))

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self.changes.check_integrity()
        self.registry.check_integrity()
        self.models.check_integrity()
        self.lives.check_integrity()
        self.requests.check_integrity()
        self.dispatcher.check_integrity()
        self.identities.check_integrity()
        if len(self.registry) != self.requests.dispatch.num_agents:
            raise RuntimeError("the registry and dispatch know different agents")


def empty_state(
    limits: Limits, version: str, ticket_secret: bytes = b"", identity_secret: bytes = b""
) -> FleetState:
    """Return the state of a fleet without agents and requests; see `Fleet`."""
    changes = ChangeLog()
    registry = Registry(limits, changes)
    lives = Lives(changes)
    requests = Requests(limits, registry, changes, lives, ticket_secret)
    return FleetState(
        limits=limits,
        version=version,
        changes=changes,
        registry=registry,
        models=ModelRegistry(memory=limits.model_memory),
        lives=lives,
        requests=requests,
        dispatcher=QueryDispatcher(limits, registry, changes, lives, requests),
        identities=Identities(identity_secret, limits.first_slots),
    )
