"""The requests that have not ended: where each is, and who gets the slot of one that ends.

Invariants: a request is here exactly when dispatch has it; its lifecycle is with the link that
dispatch has it on; its deadline is armed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ....shared.errors import AgentLost, Cancelled, EngineFailed, RequestError
from ....shared.inference import AgentId, GenerateRequest, RequestId, Token
from ....shared.messages import Cancel, Ended, Start
from ..caller import Caller
from ..change_log import ChangeLog
from ..deadlines import Deadlines
from ..decisions import Decision, DeliverTokens, FirstToken, LinkId, Refuse
from ..limits import Limits
from ..registry import Agent, Registry
from ..view import RequestView
from .dispatch import Assign, Dispatch
from .request_lifecycle import RequestLifecycle, Told
from .routing import routing_of
from .waiting_room import WaitingRoom

MAX_AGENTS_LOST = 3
"""Agents that may be lost with a request before it is taken for the cause, and ends."""


Gain = tuple[RequestLifecycle, Token]
"""What a request gained in a step."""


class Requests:
    """Every method returns decisions, to be carried out in their order."""

    def __init__(self, limits: Limits, registry: Registry, changes: ChangeLog) -> None:
        self.dispatch = Dispatch(limits.max_buffered_requests)
        self.waiting_room = WaitingRoom(self.dispatch)
        self._limits = limits
        self._registry = registry
        self._changes = changes
        self._lifecycles: dict[RequestId, RequestLifecycle] = {}
        self._deadlines: Deadlines[RequestId] = Deadlines(lambda id: self._lifecycles[id].deadline)

    def __len__(self) -> int:
        return len(self._lifecycles)

    def __contains__(self, id: object) -> bool:
        return id in self._lifecycles

    def get(self, id: RequestId) -> RequestLifecycle | None:
        """The lifecycle of a request that has not ended."""
        return self._lifecycles.get(id)

    def next_deadline(self) -> float | None:
        """Not later than the first request's deadline, or the next news for those who wait."""
        deadlines = (self._deadlines.next(), self.waiting_room.next_deadline())
        return min((each for each in deadlines if each is not None), default=None)

    def views(self, now: float) -> Iterator[RequestView]:
        """All of them, oldest first."""
        return (self.view(lifecycle, now) for lifecycle in self._lifecycles.values())

    def view(self, lifecycle: RequestLifecycle, now: float) -> RequestView:
        """One of them."""
        return lifecycle.view(self._agent_id(lifecycle), now)

    # ---- what clients do

    def admit(
        self,
        id: RequestId,
        request: GenerateRequest,
        caller: Caller,
        now: float,
        *,
        tell_waiting: float | None = None,
    ) -> list[Decision]:
        """Accept a newcomer, or refuse it when the queue is full."""
        lifecycle = RequestLifecycle(id, request, self._limits, now, caller=caller)
        assigned = self.dispatch.enqueue(id, routing_of(request, caller))
        if isinstance(assigned, Refuse):
            assigned.error.retry_after = self.waiting_room.retry_after(request.model)
            return refuse(lifecycle, assigned.error, now)
        self._lifecycles[id] = lifecycle
        self._deadlines.arm(id)
        self._changes.request_changed(id)
        self.waiting_room.admitted(id, tell_waiting, now)
        return self._start(assigned, now)

    def renamed(self, names: Mapping[str, str], now: float) -> list[Decision]:
        """Models of `names` are called something else now: those who wait for them follow."""
        ids, assigned = self.dispatch.renamed(names)
        for id in ids:
            lifecycle = self._lifecycles[id]
            name = lifecycle.request.model or ""
            lifecycle.request = replace(lifecycle.request, model=names.get(name, name))
            self._changes.request_changed(id)
        return self._start(assigned, now)

    def close(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Its client has disconnected: end it and cancel it at the agent."""
        return [*self._stop(lifecycle, now), *self._end(lifecycle, [lifecycle.gone(now)], now)]

    def cancel(self, lifecycles: Iterable[RequestLifecycle], now: float) -> list[Decision]:
        """End those that wait and cancel the others at their agents; no slot is freed meanwhile."""
        decisions: list[Decision] = []
        for lifecycle in lifecycles:
            if lifecycle.link is None:
                decisions += self.fail(lifecycle, Cancelled("cancelled before it started"), now)
            else:
                decisions += self._stop(lifecycle, now)
        return decisions

    # ---- what agents send

    def gained(
        self, gains: Sequence[Gain], now: float
    ) -> tuple[DeliverTokens, Sequence[FirstToken]]:
        """Tokens of an agent's step, each for another request or after one of its own."""
        tokens: list[tuple[RequestId, Token]] = []
        gaps: list[float] = []
        firsts: list[FirstToken] = []
        num_tokens = 0
        for lifecycle, token in gains:
            num_gained = len(token.tokens)
            num_tokens += num_gained
            gap = lifecycle.gained(num_gained, now)
            if isinstance(gap, FirstToken):
                firsts.append(gap)
                self._deadlines.arm(lifecycle.id)
            else:
                gaps.append(gap)
            tokens.append((lifecycle.id, token))
        self._changes.requests_changed([id for id, _ in tokens])
        origin = gains[0][0].origin
        return DeliverTokens(tuple(tokens), num_tokens, tuple(gaps), origin), firsts

    def received(self, lifecycle: RequestLifecycle, item: Told, now: float) -> Iterable[Decision]:
        """Something of the answer, or about it, came."""
        had_streamed = lifecycle.has_streamed
        decisions = lifecycle.received(item, now)
        if not had_streamed and lifecycle.has_streamed:
            self._deadlines.arm(lifecycle.id)
        self._changes.request_changed(lifecycle.id)
        return decisions

    def done(self, lifecycle: RequestLifecycle, end: Ended, now: float) -> list[Decision]:
        """It ended well."""
        return self._end(lifecycle, lifecycle.done(end, now), now)

    def fail(self, lifecycle: RequestLifecycle, error: RequestError, now: float) -> list[Decision]:
        """It ends with an error; the agent knows, or never had it."""
        return self._end(lifecycle, lifecycle.failed(error, now), now)

    def hand_back(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """The agent did not start it: another agent gets it, unless its client cancelled it."""
        if lifecycle.is_cancelling:
            return self.fail(lifecycle, Cancelled("cancelled before it started"), now)
        if lifecycle.has_streamed:
            return self.fail(lifecycle, EngineFailed("given back after it had started"), now)
        self._unassign(lifecycle, now)
        return self._start(self.dispatch.came_back(lifecycle.id), now)

    # ---- agents join, change and leave

    def agent_joined(self, agent: Agent, now: float) -> list[Decision]:
        """An agent is ready to be given work."""
        assigned = self.dispatch.agent_joined(
            agent.link, model=agent.generates, slots=agent.slots, is_accepting=agent.takes_work
        )
        return self._start(assigned, now)

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """An agent has other slots or another model, or takes work again, or no longer."""
        assigned = self.dispatch.agent_changed(
            agent.link, model=agent.generates, slots=agent.slots, is_accepting=agent.takes_work
        )
        return self._start(assigned, now)

    def agent_rested(self, agent: Agent, now: float) -> list[Decision]:
        """An agent that was full may be tried again."""
        return self._start(self.dispatch.agent_rested(agent.link), now)

    def agent_left(self, agent: Agent, now: float) -> list[Decision]:
        """Requests without any answer yet go elsewhere, before all who wait; the rest ends."""
        decisions: list[Decision] = []
        ended = []
        for id in self.dispatch.running_on(agent.link):
            lifecycle = self._lifecycles[id]
            lifecycle.num_agents_lost += 1
            if (error := _loss(lifecycle)) is None:
                self._unassign(lifecycle, now)
            else:
                self._forget(lifecycle)
                ended.append(id)
                decisions += lifecycle.failed(error, now)
        return [*decisions, *self._start(self.dispatch.agent_left(agent.link, ended), now)]

    # ---- time

    def due(self, now: float) -> list[Decision]:
        """End those whose deadline has come; first those that wait, so that none of them starts."""
        decisions: list[Decision] = []
        due = [self._lifecycles[id] for id in self._deadlines.due(now)]
        for lifecycle in sorted(due, key=lambda e: e.link is not None):
            if (error := lifecycle.overdue(now)) is not None:
                decisions += self._give_up(lifecycle, error, now)
        return decisions

    def end_all(self, error: RequestError, now: float) -> list[Decision]:
        """End all; first those that wait, so that none of them starts in a slot that frees."""
        decisions: list[Decision] = []
        for lifecycle in sorted(self._lifecycles.values(), key=lambda e: e.link is not None):
            decisions += self._give_up(lifecycle, error, now)
        return decisions

    def end_of(self, owner: str, error: RequestError, now: float) -> list[Decision]:
        """End those that a caller made; first those that wait, as above."""
        made = [each for each in self._lifecycles.values() if each.caller.owner == owner]
        decisions: list[Decision] = []
        for lifecycle in sorted(made, key=lambda e: e.link is not None):
            decisions += self._give_up(lifecycle, error, now)
        return decisions

    def end_on(self, link: LinkId, error: RequestError, now: float) -> list[Decision]:
        """End those that an agent has."""
        decisions: list[Decision] = []
        for id in self.dispatch.running_on(link):
            decisions += self._give_up(self._lifecycles[id], error, now)
        return decisions

    def end_stranded(self, error: RequestError, now: float) -> list[Decision]:
        """End those that wait and that no connected agent can serve."""
        decisions: list[Decision] = []
        for id in self.dispatch.stranded():
            decisions += self.fail(self._lifecycles[id], error, now)
        return decisions

    def demands(self) -> Iterator[tuple[str | None, int, float]]:
        """Models that requests wait for: how many wait, and since when the first does."""
        for model, num_waiting, first in self.dispatch.waiting():
            yield model, num_waiting, self._lifecycles[first].accepted_at

    # ---- inside

    def _start(self, assigned: Iterable[Assign], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for assign in assigned:
            lifecycle = self._lifecycles[assign.request]
            agent = self._registry[assign.link]
            lifecycle.assigned(assign.link, agent.name, now, model=agent.generates)
            self.waiting_room.started(lifecycle.id)
            self._deadlines.arm(lifecycle.id)
            self._changes.request_changed(lifecycle.id)
            self._registry.touch(assign.link)
            self._registry[assign.link].used_at = now
            start = Start(
                id=lifecycle.id,
                request=lifecycle.request,
                traceparent=lifecycle.caller.traceparent if agent.knows_traces else None,
            )
            decisions.append(self._registry.send(assign.link, start, now))
        return decisions

    def _unassign(self, lifecycle: RequestLifecycle, now: float) -> None:
        self._touch_agent(lifecycle)
        lifecycle.came_back(now)
        self.waiting_room.came_back(lifecycle.id, now)
        self._deadlines.arm(lifecycle.id)
        self._changes.request_changed(lifecycle.id)

    def _stop(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Tell the agent, if there is one, and only once."""
        if lifecycle.link is None or lifecycle.is_cancelling:
            return []
        lifecycle.is_cancelling = True
        return [self._registry.send(lifecycle.link, Cancel(id=lifecycle.id), now)]

    def _give_up(
        self, lifecycle: RequestLifecycle, error: RequestError, now: float
    ) -> list[Decision]:
        return [*self._stop(lifecycle, now), *self.fail(lifecycle, error, now)]

    def _end(self, lifecycle: RequestLifecycle, last: list[Decision], now: float) -> list[Decision]:
        """It has ended with `last`; its slot serves the next."""
        self._forget(lifecycle)
        if lifecycle.link is not None:
            self._registry[lifecycle.link].used_at = now
            self.waiting_room.freed_slot(lifecycle.model, lifecycle.slot_seconds(now))
        return [*last, *self._start(self.dispatch.ended(lifecycle.id), now)]

    def _forget(self, lifecycle: RequestLifecycle) -> None:
        del self._lifecycles[lifecycle.id]
        self._deadlines.disarm(lifecycle.id)
        self.waiting_room.forget(lifecycle.id)
        self._changes.request_gone(lifecycle.id)
        self._touch_agent(lifecycle)

    def _touch_agent(self, lifecycle: RequestLifecycle) -> None:
        if lifecycle.link is not None:
            self._registry.touch(lifecycle.link)

    def _agent_id(self, lifecycle: RequestLifecycle) -> AgentId | None:
        return None if lifecycle.link is None else self._registry[lifecycle.link].hello.agent_id

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self.dispatch.check_integrity()
        self.waiting_room.check_integrity()
        self._deadlines.check_integrity()
        for id, lifecycle in self._lifecycles.items():
            lifecycle.check_integrity()
            if id not in self._deadlines or lifecycle.is_ended:
                raise RuntimeError(f"{id} has no deadline, or has ended")
            if lifecycle.link != self.dispatch.link_of(id):
                raise RuntimeError(f"{id} is not where dispatch has it")
        if len(self._lifecycles) != self.dispatch.num_waiting + self.dispatch.num_running:
            raise RuntimeError("dispatch has a request that has ended")


def refuse(lifecycle: RequestLifecycle, error: RequestError, now: float) -> list[Decision]:
    """Refuse a newcomer."""
    return [Refuse(lifecycle.id, error), lifecycle.refused(error, now)]


def _loss(lifecycle: RequestLifecycle) -> RequestError | None:
    """The error with which a lost agent's request ends; `None` if it can go elsewhere."""
    if lifecycle.is_cancelling:
        return Cancelled("cancelled; the agent was lost before it answered")
    if lifecycle.has_streamed:
        return AgentLost(f"the agent {lifecycle.agent} was lost in the middle of the answer")
    if lifecycle.num_agents_lost >= MAX_AGENTS_LOST:
        return AgentLost(
            f"{MAX_AGENTS_LOST} agents were lost while they ran this request, the likely cause"
        )
    return None
