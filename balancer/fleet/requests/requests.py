"""What happens to requests: where each goes, and who gets the slot of one that ends."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ....shared.errors import AgentLost, Cancelled, EngineFailed, QueueFull, RequestError
from ....shared.inference import GenerateRequest, RequestId, Token
from ....shared.messages import Cancel, Ended, PromptRead, Start
from ..caller import Caller
from ..decisions import Decision, DeliverTokens, FirstToken, LinkId, Moved, Refuse
from ..recorder import MoveReason
from ..registry import Agent
from ..routing.rates import Measurement
from .delivered import Told
from .dispatch.assignments import Assign
from .live_requests import LiveRequests
from .request_lifecycle import RequestLifecycle
from .routing import Offer, RoutingRequest, routing_of

HOPELESS = 3.0
"""A newcomer is refused that would wait so many times as long as it may, for all that is known."""

ENOUGH = 10
"""Requests of a model that have ended before newcomers are refused because of how long it took."""

ENOUGH_FOR_DEADLINE = 3
"""The same, of newcomers that say their own deadline."""

Gain = tuple[RequestLifecycle, Token]
"""What a request gained in a step."""


class Requests(LiveRequests):
    """Every method returns decisions, to be carried out in their order."""

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
        """Accept a newcomer, or refuse it when the queue is full.

        For one whose caller has little in a full queue, another makes room.
        """
        lifecycle = RequestLifecycle(id, request, self._limits, now, caller=caller)
        routing = routing_of(request, caller)
        decisions = self._make_room(routing, now)
        assigned = self.dispatch.enqueue(id, routing)
        if isinstance(assigned, Refuse):
            assigned.error.retry_after = self.waiting_room.retry_after(request.model)
            return [*decisions, *refuse(lifecycle, assigned.error, now)]
        self._lifecycles[id] = lifecycle
        self._deadlines.arm(id)
        self._changes.advance()
        self.waiting_room.admitted(id, tell_waiting, now)
        self._waits(lifecycle)
        if not assigned and (error := self._hopeless(lifecycle)) is not None:
            self._forget(lifecycle)
            self.dispatch.ended(id)
            return [*decisions, *refuse(lifecycle, error, now)]
        return [*decisions, *self._start(assigned, now)]

    def resume(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Go on with one that another run of the balancer accepted; it ends where nobody can."""
        id = lifecycle.id
        routing = routing_of(lifecycle.request, lifecycle.caller)
        if lifecycle.has_streamed:
            routing = replace(routing, engine=lifecycle.engine)
        assigned = self.dispatch.resume(id, routing)
        self._lifecycles[id] = lifecycle
        self.tokens_kept += lifecycle.num_tokens
        self._deadlines.arm(id)
        self._changes.advance()
        self._waits(lifecycle)
        if not lifecycle.can_move:
            return self.fail(lifecycle, _CANNOT_RESUME, now)
        moved = [Moved(id, "restarted", lifecycle.origin)] if lifecycle.has_streamed else []
        return [*moved, *self._start(assigned, now)]

    def _hopeless(self, lifecycle: RequestLifecycle) -> QueueFull | None:
        """Why a newcomer that has to wait would wait in vain, if it would for all that is known."""
        deadline_ms = lifecycle.request.deadline_ms
        least = ENOUGH_FOR_DEADLINE if deadline_ms is not None else ENOUGH
        seconds = self.waiting_room.sure_wait(lifecycle.id, least)
        wanted = self.dispatch.wanted_by(lifecycle.id)
        is_batch = lifecycle.kind == "batch"
        if seconds is None or (not is_batch and self._giving_way.may_help(wanted)):
            return None
        position = self.dispatch.place_of(lifecycle.id)
        if deadline_ms is not None and seconds * 1000 > deadline_ms:
            return QueueFull(
                f"`deadline_ms`: a slot is free in about {seconds:.1f} s, at place {position}; "
                f"{deadline_ms} ms are too few",
                field="deadline_ms",
                retry_after=seconds,
                position=position,
            )
        if seconds > HOPELESS * self._limits.buffered_request_timeout:
            return QueueFull(
                f"a slot would be free in about {seconds:.0f} s, at place {position}; "
                f"requests wait {self._limits.buffered_request_timeout:g} s at most",
                retry_after=self.waiting_room.retry_after(lifecycle.request.model),
                position=position,
            )
        return None

    def renamed(self, names: Mapping[str, str], now: float) -> list[Decision]:
        """Models of `names` are called something else now: those who wait for them follow."""
        ids, assigned = self.dispatch.renamed(names)
        for id in ids:
            lifecycle = self._lifecycles[id]
            name = lifecycle.request.model or ""
            lifecycle.request = replace(lifecycle.request, model=names.get(name, name))
            self._waits(lifecycle)
            self._changes.advance()
        return self._start(assigned, now)

    def close(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Its client has disconnected: end it and cancel it at the agent."""
        return [*self._cancel(lifecycle, now), *self._end(lifecycle, [lifecycle.gone(now)], now)]

    def cancel(self, lifecycles: Iterable[RequestLifecycle], now: float) -> list[Decision]:
        """End those that wait and cancel the others at their agents; no slot is freed meanwhile."""
        decisions: list[Decision] = []
        for lifecycle in lifecycles:
            if lifecycle.link is None:
                decisions += self.fail(lifecycle, Cancelled("cancelled before it started"), now)
            else:
                decisions += self._cancel(lifecycle, now)
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
            num_tokens += len(token.tokens)
            was_streaming = lifecycle.is_streaming
            gap = lifecycle.gained(token, now)
            if not was_streaming:
                self._deadlines.arm(lifecycle.id)
            if isinstance(gap, FirstToken):
                firsts.append(gap)
            else:
                gaps.append(gap)
            tokens.append((lifecycle.id, token))
        self.tokens_kept += num_tokens
        self._changes.advance()
        origin = gains[0][0].origin
        return DeliverTokens(tuple(tokens), num_tokens, tuple(gaps), origin), firsts

    def received(self, lifecycle: RequestLifecycle, item: Told, now: float) -> Iterable[Decision]:
        """Something of the answer, or about it, came."""
        if isinstance(item, PromptRead):
            self.dispatch.prompt_read(lifecycle.id, item.prompt_tokens, item.cached_tokens)
        was_streaming = lifecycle.is_streaming
        decisions = lifecycle.received(item, now)
        if not was_streaming and lifecycle.is_streaming:
            self._deadlines.arm(lifecycle.id)
        self._changes.advance()
        return decisions

    def done(self, lifecycle: RequestLifecycle, end: Ended, now: float) -> list[Decision]:
        """It ended well."""
        measured = self._measured(lifecycle, end, now)
        return self._end(lifecycle, lifecycle.done(end, now), now, measured)

    def _measured(self, lifecycle: RequestLifecycle, end: Ended, now: float) -> Measurement | None:
        """What its agent showed of its speed, if the whole answer is from there."""
        if lifecycle.link is None or lifecycle.moves.num or end.finish_reason == "cancelled":
            return None
        running = self.dispatch.num_running_on(lifecycle.link)
        return Measurement(end.usage, end.rates, running, lifecycle.slot_seconds(now))

    def fail(self, lifecycle: RequestLifecycle, error: RequestError, now: float) -> list[Decision]:
        """It ends with an error; the agent knows, or never had it."""
        return self._end(lifecycle, lifecycle.failed(error, now), now)

    def hand_back(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """The agent did not start it: another agent gets it, unless its client cancelled it."""
        if lifecycle.is_cancelling:
            return self.fail(lifecycle, Cancelled("cancelled before it started"), now)
        if lifecycle.is_streaming:
            return self.fail(lifecycle, EngineFailed("given back after it had started"), now)
        self._unassign(lifecycle, now)
        return self._start(self.dispatch.came_back(lifecycle.id), now)

    def give_back(
        self, lifecycle: RequestLifecycle, error: RequestError, now: float
    ) -> list[Decision]:
        """The agent stops and does not finish it: another goes on, or it ends with `error`."""
        if lifecycle.is_cancelling or not lifecycle.is_streaming:
            return self.hand_back(lifecycle, now)
        if not lifecycle.can_move:
            return self.fail(lifecycle, error, now)
        return self._move(lifecycle, "given_back", now)

    def let_go(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """The agent was told to stop, and has: another gets it, unless its client cancelled it."""
        if lifecycle.is_cancelling:
            return self.fail(lifecycle, Cancelled("cancelled while it moved"), now)
        if lifecycle.leaving_for != "gave_way":
            return self._move(lifecycle, "drained", now)
        left = self._leave(lifecycle, "gave_way", now)
        return [left, *self._start(self.dispatch.gave_way(lifecycle.id), now)]

    # ---- agents join, change and leave

    def agent_joined(self, agent: Agent, now: float) -> list[Decision]:
        """An agent is ready to be given work."""
        return self._start(self.dispatch.agent_joined(agent.link, _offer(agent)), now)

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """An agent has other slots or another model, or takes work again, or no longer."""
        offer = _offer(agent)
        for id in self.dispatch.running_on(agent.link):
            lifecycle = self._lifecycles[id]
            if lifecycle.model == agent.generates:
                lifecycle.fingerprint_known(agent.fingerprint)
            self._runs(lifecycle, offer.keys if offer.is_able else ())
        return self._start(self.dispatch.agent_changed(agent.link, offer), now)

    def agent_suspended(self, agent: Agent) -> None:
        """An agent takes no more work, and will be gone in a moment. Starts nobody."""
        self.dispatch.agent_suspended(agent.link, _offer(agent))

    def agent_rested(self, agent: Agent, now: float) -> list[Decision]:
        """An agent that was full may be tried again."""
        return self._start(self.dispatch.agent_rested(agent.link), now)

    def measured(self, agent: Agent) -> None:
        """An agent has reported how full its cache is."""
        if agent.statistics is not None:
            cells = agent.statistics.cells
            held = cells.used + cells.kept + cells.parked
            self.dispatch.router.cache_is(agent.link, max(cells.total, held))

    def agent_left(
        self, agent: Agent, reason: MoveReason, now: float, *, hung_up: bool = False
    ) -> list[Decision]:
        """Its requests go elsewhere, before all who wait; those that cannot end.

        They are no suspects if it `hung_up` in good order, as agents do when the balancer was
        silent: after a pause of the balancer all of them have.
        """
        decisions: list[Decision] = []
        ended = []
        running = self.dispatch.running_on(agent.link)
        for id in running:
            lifecycle = self._lifecycles[id]
            if not hung_up:
                lifecycle.moves.agent_lost(is_alone=len(running) == 1)
            if (error := _loss(lifecycle)) is None:
                decisions.append(self._leave(lifecycle, reason, now))
            else:
                self._forget(lifecycle)
                ended.append(id)
                decisions += lifecycle.failed(error, now)
        return [*decisions, *self._start(self.dispatch.agent_left(agent.link, ended), now)]

    # ---- time

    def due(self, now: float) -> list[Decision]:
        """End those whose deadline has come; first those that wait, so that none of them starts.

        Those that waited long enough for one agent take any, and `batch` gives way to who waits.
        """
        decisions: list[Decision] = []
        due = [self._lifecycles[id] for id in self._deadlines.due(now)]
        for lifecycle in sorted(due, key=lambda e: e.link is not None):
            if (error := lifecycle.overdue(now)) is not None:
                decisions += self._give_up(lifecycle, error, now)
        for id in self._held.pop_until(now):
            decisions += self._start(self.dispatch.release(id), now)
        return [*decisions, *self._give_way(now)]

    def _give_way(self, now: float) -> list[Decision]:
        """Have agents stop `batch` requests whose slots others need; they go on later."""
        decisions: list[Decision] = []
        asked = self._giving_way.due(now, self.dispatch.has_free_slot, self._can_leave)
        for lifecycle in (self._lifecycles[id] for id in asked):
            decisions += self._stop(lifecycle, now)
            lifecycle.leaving_for = "gave_way"
        return decisions

    def _can_leave(self, id: RequestId) -> bool:
        lifecycle = self._lifecycles[id]
        is_going = lifecycle.is_cancelling or lifecycle.is_leaving
        return lifecycle.can_move and not is_going

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

    # ---- inside

    def _make_room(self, routing: RoutingRequest, now: float) -> list[Decision]:
        """End the one that has to go from a full queue for such a newcomer, if one has to."""
        id = self.dispatch.makes_room_for(routing)
        if id is None:
            return []
        lifecycle = self._lifecycles[id]
        error = QueueFull(
            "the queue is full, and its caller has most in it: others were let in",
            retry_after=self.waiting_room.retry_after(lifecycle.request.model),
            position=self.dispatch.place_of(id),
        )
        return self.fail(lifecycle, error, now)

    def _start(self, assigned: Iterable[Assign], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for assign in assigned:
            lifecycle = self._lifecycles[assign.request]
            agent = self._registry[assign.link]
            continuation = lifecycle.continuation
            lifecycle.assigned(
                assign.link,
                agent.name,
                now,
                model=agent.generates,
                fingerprint=agent.fingerprint,
            )
            self._not_held(lifecycle.id)
            self.waiting_room.started(lifecycle.id)
            self._runs(lifecycle, _offer(agent).keys)
            self._deadlines.arm(lifecycle.id)
            self._changes.advance()
            self._registry.touch(assign.link)
            self._registry[assign.link].used_at = now
            start = Start(
                id=lifecycle.id,
                request=_for_agent(lifecycle.request),
                continuation=continuation,
                traceparent=lifecycle.caller.traceparent if agent.knows_traces else None,
            )
            decisions.append(self._registry.send(assign.link, start, now))
        self._hold(now)
        return decisions

    def _hold(self, now: float) -> None:
        """Some wait for one agent from now on."""
        for hold in self.dispatch.take_holds():
            if hold.request in self._lifecycles and self.dispatch.is_held(hold.request):
                self._held.set(hold.request, now + hold.seconds)

    def _unassign(self, lifecycle: RequestLifecycle, now: float) -> None:
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
        if lifecycle.has_streamed and (engine := lifecycle.engine) is not None:
            self.dispatch.bind(lifecycle.id, engine)
        self._touch_agent(lifecycle)
        self.num_moves += 1
        moved = lifecycle.moved(reason, now)
        self._waits(lifecycle)
        self.waiting_room.came_back(lifecycle.id, now)
        self._deadlines.arm(lifecycle.id)
        self._changes.advance()
        return moved

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


_CANNOT_RESUME = AgentLost(
    "the balancer was restarted in the middle of the answer, and no agent can go on: the answer is "
    "too long, or its agent did not say which others could"
)


def refuse(lifecycle: RequestLifecycle, error: RequestError, now: float) -> list[Decision]:
    """Refuse a newcomer."""
    return [Refuse(lifecycle.id, error), lifecycle.refused(error, now)]


def _for_agent(request: GenerateRequest) -> GenerateRequest:
    """Without what only the queue needs, and older agents do not know."""
    return request if request.deadline_ms is None else replace(request, deadline_ms=None)


def _offer(agent: Agent) -> Offer:
    return Offer(
        model=agent.generates,
        slots=agent.slots,
        is_accepting=agent.takes_work,
        fingerprint=agent.fingerprint,
        cache_tokens=agent.slots * agent.model.context_size if agent.model else 0,
    )


def _loss(lifecycle: RequestLifecycle) -> RequestError | None:
    """The error with which a lost agent's request ends; `None` if it can go elsewhere."""
    if lifecycle.is_cancelling:
        return Cancelled("cancelled; the agent was lost before it answered")
    if (suspicion := lifecycle.moves.suspicion) is not None:
        return suspicion
    if not lifecycle.can_move:
        return AgentLost(f"the agent {lifecycle.agent} was lost in the middle of the answer")
    return None
