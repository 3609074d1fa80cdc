"""The requests that have not ended: each is found by its id, and seen.

Invariants: a request is here exactly when dispatch has it; its lifecycle is with the link that
dispatch has it on; its deadline is armed.
"""

from collections.abc import Callable, Iterator

from ....shared.inference import AgentId, RequestId
from ..change_log import ChangeLog
from ..deadlines import Deadlines, earliest
from ..limits import Limits
from ..priority_queue import PriorityQueue
from ..registry import Registry
from ..routing.fetches import Tickets
from ..routing.router import LONGEST_WAIT, Router
from ..trust import Needed
from ..view import RequestView, RoutingView
from .dispatch.dispatch import Dispatch
from .dispatch.needs import Needs
from .fair_queue.foreground import Foreground
from .giving_way import GivingWay, least_run
from .request_lifecycle import RequestLifecycle
from .routing import Wanted
from .waiting_room import WaitingRoom

LEAST_PATIENCE = 5.0
"""Seconds without a sign of an answer before it is asked whether the agent does anything at all."""


class LiveRequests:
    """`tokens_kept` were delivered to requests that have not ended; `num_moves` are of all."""

    def __init__(
        self,
        limits: Limits,
        registry: Registry,
        changes: ChangeLog,
        ticket_secret: bytes = b"",
    ) -> None:
        self.tickets = Tickets(ticket_secret)
        self.dispatch = Dispatch(limits.max_buffered_requests, _router(limits))
        self.waiting_room = WaitingRoom(self.dispatch)
        self.foreground = Foreground()
        self.needs = Needs()
        self._giving_way = GivingWay()
        self._limits = limits
        self._registry = registry
        self._changes = changes
        self._lifecycles: dict[RequestId, RequestLifecycle] = {}
        self.get: Callable[[RequestId], RequestLifecycle | None] = self._lifecycles.get
        """The lifecycle of a request that has not ended; asked for each token."""
        self.tokens_kept = 0
        self.num_moves = 0
        self._deadlines: Deadlines[RequestId] = Deadlines(lambda id: self._lifecycles[id].deadline)
        self._held: PriorityQueue[RequestId, float] = PriorityQueue()
        """Those that wait for one agent, and until when."""
        self._least_patience = min(LEAST_PATIENCE, limits.first_token_timeout / 2)
        self._bound: dict[RequestId, None] = {}
        """Those that wait for agents like the one that began their answer: one was here."""
        self._needed = Needed()

    def __len__(self) -> int:
        return len(self._lifecycles)

    def __contains__(self, id: object) -> bool:
        return id in self._lifecycles

    def next_deadline(self) -> float | None:
        """Not later than the first request's deadline, or the next news for those who wait."""
        first_held = self._held.first()
        until = None if first_held is None else first_held[0]
        return earliest(
            self._deadlines.next(),
            self.waiting_room.next_deadline(),
            until,
            self._giving_way.next_deadline(self.dispatch.has_free_slot),
        )

    @property
    def routing_view(self) -> RoutingView:
        """How agents were chosen so far."""
        counts = self.dispatch.router.counts
        return RoutingView(
            num_warm=counts.warm,
            num_cold=counts.cold,
            num_waited=counts.waited,
            num_gave_up=counts.gave_up,
            num_evicted=counts.evicted,
            num_fetching=counts.fetching,
            num_beliefs=self.dispatch.router.num_beliefs,
            num_cache_keys=self.dispatch.router.num_cache_keys,
        )

    def views(self, now: float) -> Iterator[RequestView]:
        """All of them, oldest first."""
        return (self.view(lifecycle, now) for lifecycle in self._lifecycles.values())

    def view(self, lifecycle: RequestLifecycle, now: float) -> RequestView:
        """One of them."""
        return lifecycle.view(self._agent_id(lifecycle), now)

    def demands(self) -> Iterator[tuple[str | None, int, float]]:
        """Models that requests wait for: how many wait, and since when the first does."""
        for model, num_waiting, first in self.dispatch.waiting():
            yield model, num_waiting, self._lifecycles[first].accepted_at

    # ---- inside

    def _forget(self, lifecycle: RequestLifecycle) -> None:
        del self._lifecycles[lifecycle.id]
        self.tokens_kept -= lifecycle.num_tokens
        self._deadlines.disarm(lifecycle.id)
        self._not_held(lifecycle.id)
        self.waiting_room.forget(lifecycle.id)
        self._giving_way.stops(lifecycle.id)
        self.foreground.left(lifecycle.id)
        self.needs.left(lifecycle.id)
        self._bound.pop(lifecycle.id, None)
        self._changes.advance()
        self._touch_agent(lifecycle)

    def _not_held(self, id: RequestId) -> None:
        """It does not wait for one agent alone, if it did."""
        if id in self._held:
            self._held.remove(id)

    def _waits(self, lifecycle: RequestLifecycle) -> None:
        """It has no agent: `batch` requests give way to it, unless it is one."""
        self._giving_way.stops(lifecycle.id)
        if lifecycle.kind != "batch":
            self._giving_way.waits(lifecycle.id, self.dispatch.wanted_by(lifecycle.id))

    def _runs(self, lifecycle: RequestLifecycle, keys: tuple[Wanted, ...]) -> None:
        """It has an agent that serves those who want what is in `keys`."""
        if lifecycle.kind != "batch":
            self._giving_way.stops(lifecycle.id)
        else:
            at = lifecycle.assigned_at + least_run(lifecycle.moves.num_given_way)
            self._giving_way.runs(lifecycle.id, keys, at)

    def _came(self, lifecycle: RequestLifecycle, now: float) -> None:
        """It is here from now on."""
        self._lifecycles[lifecycle.id] = lifecycle
        if lifecycle.kind != "batch":
            self.foreground.came(lifecycle.id, lifecycle.request.model, now)
        self._deadlines.arm(lifecycle.id)
        self._changes.advance()

    def _touch_agent(self, lifecycle: RequestLifecycle) -> None:
        if lifecycle.link is not None:
            self._registry.touch(lifecycle.link)

    def _agent_id(self, lifecycle: RequestLifecycle) -> AgentId | None:
        return None if lifecycle.link is None else self._registry[lifecycle.link].hello.agent_id

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self.dispatch.check_integrity()
        self.needs.check_integrity()
        if len(self.foreground) != sum(e.kind != "batch" for e in self._lifecycles.values()):
            raise RuntimeError("requests above the class batch are miscounted")
        self.waiting_room.check_integrity()
        self._giving_way.check_integrity()
        self._deadlines.check_integrity()
        self._held.check_integrity()
        if any(self.dispatch.link_of(id) is not None for id in (*self._held, *self._bound)):
            raise RuntimeError("a request that runs waits for an agent")
        if self.tokens_kept != sum(each.num_tokens for each in self._lifecycles.values()):
            raise RuntimeError("the kept tokens are miscounted")
        for id, lifecycle in self._lifecycles.items():
            lifecycle.check_integrity()
            if id not in self._deadlines or lifecycle.is_ended:
                raise RuntimeError(f"{id} has no deadline, or has ended")
            if lifecycle.link != self.dispatch.link_of(id):
                raise RuntimeError(f"{id} is not where dispatch has it")
        if len(self._lifecycles) != self.dispatch.num_waiting + self.dispatch.num_running:
            raise RuntimeError("dispatch has a request that has ended")


def _router(limits: Limits) -> Router:
    """Who waits for one agent has time left for any other."""
    longest = min(LONGEST_WAIT, limits.buffered_request_timeout / 2)
    return Router(longest_wait=longest, is_on=limits.routing == "cost")
