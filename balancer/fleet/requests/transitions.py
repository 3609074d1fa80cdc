"""The steps of which a request's way consists: it starts, leaves its agent, is stopped, ends."""

from collections.abc import Iterable
from dataclasses import replace

from ....shared.errors import AgentLost, Cancelled, RequestError
from ....shared.inference import GenerateRequest, RequestId
from ....shared.inference.prefix_peers import PrefixSource
from ....shared.messages import Cancel, Start
from ..decisions import Decision, LinkId, Moved, Refuse
from ..recorder import MoveReason
from ..registry import Agent
from ..routing.rates import Measurement
from .claims import Claim
from .dispatch.assignments import Assign
from .dispatch.needs import Needs
from .live_requests import LiveRequests
from .request_lifecycle import RequestLifecycle
from .routing import ByText, Offer, RoutingRequest, routing_of

MOST_DESERTED = 8
"""Agents that a request leaves at most because they do not answer it."""


class Transitions(LiveRequests):
    """Every method returns decisions, to be carried out in their order."""

    def fail(self, lifecycle: RequestLifecycle, error: RequestError, now: float) -> list[Decision]:
        """It ends with an error; the agent knows, or never had it."""
        return self._end(lifecycle, lifecycle.failed(error, now), now)

    def _start(self, assigned: Iterable[Assign], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for assign in assigned:
            lifecycle = self._lifecycles[assign.request]
            agent = self._registry[assign.link]
            if assign.link in lifecycle.deserted:
                # It has not answered the cancel of this very request: as if it were full.
                self._registry.rests(agent, now)
                decisions += self._start(self.dispatch.came_back(lifecycle.id), now)
                continue
            continuation = lifecycle.continuation_for(agent.fingerprint)
            lifecycle.assigned(
                assign.link,
                agent.name,
                now,
                model=agent.generates,
                fingerprint=agent.fingerprint,
                forwards=agent.forwards,
            )
            lifecycle.claim = Claim.of(lifecycle.request, agent.model, lifecycle.delivered)
            self._bound.pop(lifecycle.id, None)
            self._not_held(lifecycle.id)
            self.waiting_room.started(lifecycle.id)
            self._runs(lifecycle, offer_of(agent, self.needs).keys)
            if not (lifecycle.has_streamed or len(lifecycle.deserted) == MOST_DESERTED):
                lifecycle.look_at = now + self._least_patience
            self._deadlines.arm(lifecycle.id)
            self._changes.advance()
            self._registry.touch(assign.link)
            self._registry[assign.link].used_at = now
            lends, fetch = self._lend(lifecycle, assign, now)
            decisions += lends
            start = Start(
                id=lifecycle.id,
                request=_for_agent(lifecycle.request),
                continuation=continuation,
                traceparent=lifecycle.caller.traceparent,
                fetch=fetch,
            )
            decisions.append(self._registry.send(assign.link, start, now))
        self._hold(now)
        return decisions

    def _lend(
        self, lifecycle: RequestLifecycle, assign: Assign, now: float
    ) -> tuple[list[Decision], PrefixSource | None]:
        """What the lender of a prefix is told, and where it is to be had; if there is one."""
        fetching = assign.fetching
        if fetching is None or lifecycle.has_streamed or not self.tickets.are_there:
            return [], None  # who goes on with another agent's answer computes all of it
        ticket = self.tickets.draw(lifecycle.id)
        lend, source = self.dispatch.router.fetches.agree(fetching.source, ticket, fetching)
        return [self._registry.send(fetching.source, lend, now)], source

    def _hold(self, now: float) -> None:
        """Some wait for one agent from now on."""
        for hold in self.dispatch.take_holds():
            if hold.request in self._lifecycles and self.dispatch.is_held(hold.request):
                self._held.set(hold.request, now + hold.seconds)

    def _unassign(self, lifecycle: RequestLifecycle, now: float) -> None:
        if lifecycle.has_streamed:
            self._bind(lifecycle, leaves=None)
        self._touch_agent(lifecycle)
        lifecycle.came_back(now)
        self._waits(lifecycle)
        self.waiting_room.came_back(lifecycle.id, now)
        self._deadlines.arm(lifecycle.id)
        self._changes.advance()

    def _move(self, lifecycle: RequestLifecycle, reason: MoveReason, now: float) -> list[Decision]:
        """Its agent has stopped: it returns to the head of the queue."""
        left = self._leave(lifecycle, reason, now)
        return [left, *self._start(self.dispatch.came_back(lifecycle.id), now)]

    def _leave(self, lifecycle: RequestLifecycle, reason: MoveReason, now: float) -> Moved:
        if lifecycle.has_streamed:
            stays = reason == "gave_way"
            self._bind(lifecycle, leaves=None if stays else lifecycle.link)
        self._touch_agent(lifecycle)
        self.num_moves += 1
        moved = lifecycle.desert(now) if reason == "unanswered" else lifecycle.moved(reason, now)
        self._waits(lifecycle)
        self.waiting_room.came_back(lifecycle.id, now)
        self._deadlines.arm(lifecycle.id)
        self._changes.advance()
        return moved

    def _bind(self, lifecycle: RequestLifecycle, leaves: LinkId | None) -> None:
        """Who goes on with its answer: agents like the one it `leaves`, or others by text."""
        engine = lifecycle.engine
        if engine is not None and self.dispatch.serves(engine, besides=leaves):
            self.dispatch.bind(lifecycle.id, engine)
            self._bound[lifecycle.id] = None
        elif lifecycle.by_text is not None:
            self._by_text(lifecycle.id, lifecycle.by_text)
        elif engine is not None:
            self.dispatch.bind(lifecycle.id, engine)

    def _by_text(self, id: RequestId, by_text: ByText) -> None:
        self._bound.pop(id, None)
        if self.needs.came(id, by_text):
            self._offer_anew()
        self.dispatch.goes_on_by_text(id, by_text)

    def _unbind(self, now: float) -> list[Decision]:
        """Agents changed or left: those whose answers no like agent goes on with take others."""
        freed = []
        for id in list(self._bound):
            lifecycle = self._lifecycles[id]
            if lifecycle.engine is not None and self.dispatch.serves(lifecycle.engine):
                continue
            if (by_text := lifecycle.by_text) is not None:
                self._by_text(id, by_text)
                self._waits(lifecycle)
                freed.append(id)
        return self._start(self.dispatch.retry(freed), now) if freed else []

    def _cancel(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Its client does not want it any more."""
        decisions = self._stop(lifecycle, now)
        lifecycle.is_cancelling = lifecycle.link is not None
        return decisions

    def _stop(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Tell the agent, if there is one, and only once."""
        is_told = lifecycle.is_cancelling or lifecycle.is_leaving
        if lifecycle.link is None or is_told:
            return []
        return [self._registry.send(lifecycle.link, Cancel(id=lifecycle.id), now)]

    def _give_up(
        self, lifecycle: RequestLifecycle, error: RequestError, now: float
    ) -> list[Decision]:
        return [*self._stop(lifecycle, now), *self.fail(lifecycle, error, now)]

    def _end(
        self,
        lifecycle: RequestLifecycle,
        last: list[Decision],
        now: float,
        measured: Measurement | None = None,
    ) -> list[Decision]:
        """It has ended with `last`; its slot serves the next."""
        self._forget(lifecycle)
        if lifecycle.link is not None:
            self._registry[lifecycle.link].used_at = now
            self.waiting_room.freed_slot(lifecycle.model, lifecycle.slot_seconds(now))
        ended = self.dispatch.ended(lifecycle.id, measured, charge=lifecycle.charge)
        return [*last, *self._start(ended, now)]

    # ---- what not every agent can do

    def _routing_of(self, lifecycle: RequestLifecycle) -> RoutingRequest:
        """How a newcomer finds its agent; those that can serve it offer to, from now on."""
        routing = routing_of(lifecycle.request, lifecycle.caller)
        able = self.needs.key_of(lifecycle.request)
        if able is None:
            return routing
        if self.needs.came(lifecycle.id, able):
            self._offer_anew()
        return replace(routing, able=able)

    def _offer_anew(self) -> None:
        """There are other needs than before."""
        for agent in self._registry:
            if self.dispatch.has_agent(agent.link):
                self.dispatch.agent_offers(agent.link, offer_of(agent, self.needs))

    def _look_at_needs(self, agent: Agent, now: float) -> list[Decision]:
        """An agent that lacks something gets none of those that need it, also of those who wait."""
        if agent.generates is None or not self.needs.seen(agent.abilities):
            return []
        narrowed = []
        for id, lifecycle in self._lifecycles.items():
            is_bound = lifecycle.has_streamed  # to who goes on with its answer
            if not is_bound and (able := self.needs.key_of(lifecycle.request)) is not None:
                self.needs.came(id, able)
                self.dispatch.narrow(id, able)
                narrowed.append(id)
        self._offer_anew()
        return self._start(self.dispatch.retry(narrowed), now)

    # ---- many at once

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

    def move_from(self, link: LinkId, error: RequestError, now: float) -> list[Decision]:
        """Have an agent stop what it has, so that others go on; what cannot move ends.

        They move when the agent has answered, so that none is on two agents.
        """
        decisions: list[Decision] = []
        for id in self.dispatch.running_on(link):
            lifecycle = self._lifecycles[id]
            if lifecycle.is_cancelling:
                continue
            if lifecycle.can_move:
                decisions += self._stop(lifecycle, now)
                lifecycle.leaving_for = lifecycle.leaving_for or "drained"
            else:
                decisions += self._give_up(lifecycle, error, now)
        return decisions

    def end_stranded(self, error: RequestError, now: float) -> list[Decision]:
        """End those that wait and that no connected agent can serve."""
        decisions: list[Decision] = []
        for id in self.dispatch.stranded():
            decisions += self.fail(self._lifecycles[id], error, now)
        return decisions


def _for_agent(request: GenerateRequest) -> GenerateRequest:
    """Without what only queue and routing need."""
    if request.deadline_ms is None and request.prompt_cache_key is None:
        return request
    return replace(request, deadline_ms=None, prompt_cache_key=None)


def offer_of(agent: Agent, needs: Needs) -> Offer:
    """What dispatch may give the agent."""
    return Offer(
        model=agent.generates,
        slots=agent.slots,
        is_accepting=agent.takes_work,
        fingerprint=agent.fingerprint,
        cache_tokens=agent.slots * agent.model.context_size if agent.model else 0,
        able=tuple(
            able
            for name in (agent.generates, *agent.adapted)
            for able in needs.keys_for(name, agent.abilities, agent.goes_on_from)
        ),
        adapted=agent.adapted,
        peer=agent.peer,
        allowed=agent.trust.allowed,
    )


def refuse(lifecycle: RequestLifecycle, error: RequestError, now: float) -> list[Decision]:
    """Refuse a newcomer."""
    return [Refuse(lifecycle.id, error), lifecycle.refused(error, now)]


def loss_of(lifecycle: RequestLifecycle) -> RequestError | None:
    """The error with which a lost agent's request ends; `None` if it can go elsewhere."""
    if lifecycle.is_cancelling:
        return Cancelled("cancelled; the agent was lost before it answered")
    if (suspicion := lifecycle.moves.suspicion) is not None:
        return suspicion
    if not lifecycle.can_move:
        return AgentLost(f"the agent {lifecycle.agent} was lost in the middle of the answer")
    return None
