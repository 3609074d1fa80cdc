"""What others see of the fleet, now, and when it has changed. Reading changes nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from ....shared.inference import AgentId, GenerateRequest, RequestId, Waiting
from ....shared.reports.model_info import Task
from ...access.limits.account import Standing
from ...control.agent_plan import AgentPlan
from ...control.desired_state import DesiredState
from ...control.model_status import ModelStatus
from ..caller import ANONYMOUS, Caller
from ..core.fleet import Fleet
from ..limits import Limits
from ..view import (
    AgentView,
    Cordon,
    FleetDelta,
    FleetTotals,
    FleetView,
    ForegroundView,
    ModelView,
    RequestView,
)

WATCH_INTERVAL = 0.2
"""Shortest time between two looks at the fleet of one watcher, in seconds."""


class RuntimeViews:
    """The core's views as of now; `notify` wakes whoever waits for a change."""

    def __init__(
        self, fleet: Fleet, clock: Callable[[], float], watch_interval: float = WATCH_INTERVAL
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._watch_interval = watch_interval
        self._seen = fleet.revision
        self._changed = asyncio.Event()

    @property
    def limits(self) -> Limits:
        """How much may wait and how long anything may take."""
        return self._fleet.limits

    @property
    def num_limited_callers(self) -> int:
        """Callers whose limits are counted."""
        return self._fleet.num_limited_callers

    def standing(self, caller: Caller) -> Standing:
        """How much of its limits a caller has left."""
        return self._fleet.standing(caller, self._clock())

    @property
    def outbid(self) -> int | None:
        """A later epoch that agents know than the one under which this balancer leads."""
        return self._fleet.outbid

    def waiting_by_model(self) -> Mapping[str, tuple[int, float]]:
        """How many requests wait for each model, and for how many seconds the oldest has."""
        now, waiting = self._clock(), self._fleet.waiting_by_model()
        return {name: (each.num_waiting, now - each.since) for name, each in waiting.items()}

    def priority(self, request: GenerateRequest, caller: Caller) -> int | None:
        """The priority that a request of `caller` gets; `None` is that nobody said one."""
        return self._fleet.priority(request, caller)

    def statuses(self) -> Mapping[str, ModelStatus]:
        """How each wished model is."""
        return self._fleet.statuses()

    def view(self, max_requests: int | None = None) -> FleetView:
        """The totals, all agents, and the oldest requests. Costs in proportion to their number."""
        return self._fleet.view(self._clock(), max_requests)

    def agent(self, id: AgentId) -> AgentView | None:
        """One agent, if it is connected."""
        return self._fleet.agent(id, self._clock())

    def slots_taken(self) -> Mapping[AgentId, int]:
        """How many slots of each agent this balancer has taken, where it has any."""
        return self._fleet.slots_taken()

    def requests(self) -> Iterator[RequestView]:
        """Requests and queries that have not ended, oldest first; each costs when it comes."""
        return self._fleet.requests(self._clock())

    def request(self, id: RequestId) -> RequestView | None:
        """One request or query, if it has not ended."""
        return self._fleet.request(id, self._clock())

    def position(self, id: RequestId) -> int | None:
        """The place of a request that waits for an agent, from 1; `None` of any other."""
        return self._fleet.position(id)

    def waiting(self, id: RequestId) -> Waiting | None:
        """What a request can expect that waits for an agent; `None` of any other."""
        return self._fleet.waiting(id, self._clock())

    @property
    def revision(self) -> int:
        """Grows with everything that others can see."""
        return self._fleet.revision

    def changes_since(self, revision: int) -> FleetDelta | None:
        """What changed after `revision`; `None` if that is too long ago, so take a `view`."""
        return self._fleet.changes_since(revision, self._clock())

    def tokens_since(self, revision: int) -> list[tuple[AgentId, int]]:
        """The agents that gave tokens after `revision`, and how many they gave so far."""
        return self._fleet.tokens_since(revision)

    def models(self, caller: Caller = ANONYMOUS) -> tuple[ModelView, ...]:
        """Every known model that the caller may use, by name."""
        return self._fleet.models(caller)

    def model(self, name: str, caller: Caller = ANONYMOUS) -> ModelView | None:
        """The known model of that name, if the caller may use it."""
        return self._fleet.model(name, caller)

    def num_slots_for(self, model: str | None) -> int:
        """The slots of agents that take requests for a model, or any; 0 if none does."""
        return self._fleet.num_slots_for(model)

    def foreground(self, model: str | None) -> ForegroundView:
        """The requests above the class `batch` that may go where those of a model go."""
        return self._fleet.foreground(model, self._clock())

    def model_name_for(self, task: Task | None, caller: Caller = ANONYMOUS) -> str:
        """The name in answers to requests that named no model; empty where none can do `task`."""
        return self._fleet.model_name_for(task, caller)

    def totals(self) -> FleetTotals:
        """The fleet now in a few numbers, at a constant cost."""
        return self._fleet.totals()

    def cordon_of(self, agent: AgentId) -> Cordon | None:
        """The cordon of an agent that gets no new work."""
        return self._fleet.cordon_of(agent)

    def dry_run(self, wish: DesiredState) -> list[AgentPlan]:
        """What each agent would do if this were wished for. Costs the size of the fleet."""
        return self._fleet.dry_run(wish, self._clock())

    async def changes(self) -> AsyncIterator[None]:
        """Yields at once, then after changes, at most once in a `watch_interval`."""
        while True:
            changed = self._changed
            yield
            await asyncio.sleep(self._watch_interval)
            await changed.wait()

    async def _change(self) -> None:
        """Waits for the next change."""
        await self._changed.wait()

    def _notify(self) -> None:
        """Wake whoever waits, if something changed since this was last called."""
        if self._seen != self._fleet.revision:
            self._seen = self._fleet.revision
            self._changed.set()
            self._changed = asyncio.Event()
