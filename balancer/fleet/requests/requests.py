"""What happens to requests: where each goes, and who gets the slot of one that ends."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from ....shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    FirstTokenTimeout,
    QueueFull,
    RequestError,
    TokenTimeout,
)
from ....shared.inference import GenerateRequest, RequestId, Token
from ....shared.messages import Cancel, Ended, Evicted, PromptRead
from ..caller import Caller
from ..decisions import Decision, DeliverTokens, FirstToken, Moved, Refuse
from ..recorder import MoveReason
from ..registry import Agent
from ..routing.rates import Measurement
from .claims import consistent
from .delivered import Told
from .dispatch.assignments import Assign
from .hopeless import least_ended, refusal_of
from .request_lifecycle import RequestLifecycle
from .routing import RoutingRequest
from .transitions import Transitions, loss_of, offer_of, refuse

_AGENTS_FAULT = (FirstTokenTimeout.code, TokenTimeout.code)
"""Codes of deadlines that agents have not met."""

_CANNOT_RESUME = AgentLost(
    "the balancer was restarted in the middle of the answer, and no agent can go on: the answer is "
    "too long, or its agent did not say which others could"
)

PATIENCE = 8.0
"""An agent may be silent for so many times as long as it is expected to take to a first token."""

Gain = tuple[RequestLifecycle, Token]
"""What a request gained in a step."""


class Requests(Transitions):
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
        routing = self._routing_of(lifecycle)
        decisions = self._make_room(routing, now)
        assigned = self.dispatch.enqueue(id, routing)
        if isinstance(assigned, Refuse):
            self.needs.left(id)
            assigned.error.retry_after = self.waiting_room.retry_after(request.model)
            return [*decisions, *refuse(lifecycle, assigned.error, now)]
        self._came(lifecycle, now)
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
        assigned = self.dispatch.resume(id, self._routing_on(lifecycle))
        self.tokens_kept += lifecycle.num_tokens
        self._came(lifecycle, now)
        self._waits(lifecycle)
        if not lifecycle.can_move:
            return self.fail(lifecycle, _CANNOT_RESUME, now)
        moved = [Moved(id, "restarted", lifecycle.origin)] if lifecycle.has_streamed else []
        return [*moved, *self._start(assigned, now)]

    def _routing_on(self, lifecycle: RequestLifecycle) -> RoutingRequest:
        """How one that was accepted before finds its agent."""
        routing, by_text = self._routing_of(lifecycle), lifecycle.by_text
        engine = lifecycle.engine
        if not lifecycle.has_streamed:
            return routing
        if by_text is None:
            return replace(routing, engine=engine)
        if engine is not None and self.dispatch.serves(engine):
            self._bound[lifecycle.id] = None
            return replace(routing, engine=engine)
        if self.needs.came(lifecycle.id, by_text):
            self._offer_anew()
        return replace(routing, able=by_text)

    def _hopeless(self, lifecycle: RequestLifecycle) -> QueueFull | None:
        """Why a newcomer that has to wait would wait in vain, if it would for all that is known."""
        deadline_ms = lifecycle.request.deadline_ms
        seconds = self.waiting_room.sure_wait(lifecycle.id, least_ended(deadline_ms))
        wanted = self.dispatch.wanted_by(lifecycle.id)
        is_batch = lifecycle.kind == "batch"
        if seconds is None or (not is_batch and self._giving_way.may_help(wanted)):
            return None
        return refusal_of(
            seconds,
            deadline_ms=deadline_ms,
            longest_wait=self._limits.buffered_request_timeout,
            position=self.dispatch.place_of(lifecycle.id),
            retry_after=self.waiting_room.retry_after(lifecycle.request.model),
        )

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

    def refuse(self, errors: Mapping[str, RequestError], now: float) -> list[Decision]:
        """End those that wait for models of this name: they would wait in vain."""
        waiting = [one for one in self._lifecycles.values() if one.link is None]
        decisions: list[Decision] = []
        for lifecycle in waiting:
            error = errors.get(lifecycle.request.model or "")
            if error is not None:
                decisions += self.fail(lifecycle, error, now)
        return decisions

    # ---- what agents send

    def gained(
        self, gains: Sequence[Gain], now: float
    ) -> tuple[DeliverTokens, Sequence[FirstToken], int]:
        """Tokens of an agent's step, each for another request or after one of its own.

        And how many answers have begun with them.
        """
        tokens: list[tuple[RequestId, Token]] = []
        gaps: list[float] = []
        firsts: list[FirstToken] = []
        num_tokens = 0
        num_begun = 0
        for lifecycle, token in gains:
            num_tokens += len(token.tokens)
            was_streaming = lifecycle.is_streaming
            gap = lifecycle.gained(token, now)
            if not was_streaming:
                num_begun += 1
                self._deadlines.arm(lifecycle.id)
            if isinstance(gap, FirstToken):
                firsts.append(gap)
            else:
                num = len(token.tokens) or 1
                gaps += [gap / num] * num
            tokens.append((lifecycle.id, token))
        self.tokens_kept += num_tokens
        self._changes.advance()
        origin = gains[0][0].origin
        return DeliverTokens(tuple(tokens), num_tokens, tuple(gaps), origin), firsts, num_begun

    def received(self, lifecycle: RequestLifecycle, item: Told, now: float) -> Iterable[Decision]:
        """Something of the answer, or about it, came."""
        if isinstance(item, PromptRead):
            cached = min(item.cached_tokens, item.prompt_tokens)
            self.dispatch.prompt_read(lifecycle.id, item.prompt_tokens, cached)
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
        usage = consistent(end.usage)
        return Measurement(usage, end.rates, running, lifecycle.slot_seconds(now))

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

    def lost_server(
        self, lifecycle: RequestLifecycle, error: RequestError, now: float
    ) -> list[Decision]:
        """The server behind its agent is gone: another goes on, or it ends with `error`."""
        if lifecycle.is_cancelling:
            return self.fail(lifecycle, Cancelled("cancelled; its server was lost"), now)
        lifecycle.moves.agent_lost(is_alone=False)
        if (suspicion := lifecycle.moves.suspicion) is not None:
            return self.fail(lifecycle, suspicion, now)
        if not (lifecycle.is_streaming and lifecycle.can_move):
            return self.fail(lifecycle, error, now)
        return self._move(lifecycle, "lost", now)

    def let_go(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """The agent was told to stop, and has: another gets it, unless its client cancelled it."""
        if lifecycle.is_cancelling:
            return self.fail(lifecycle, Cancelled("cancelled while it moved"), now)
        if not lifecycle.can_move:
            stopped = f"the agent {lifecycle.agent} has stopped, and no other can go on after it"
            return self.fail(lifecycle, AgentLost(stopped), now)
        reason: MoveReason = "gave_way" if lifecycle.leaving_for == "gave_way" else "drained"
        left = self._leave(lifecycle, reason, now)
        return [left, *self._start(self.dispatch.gave_way(lifecycle.id), now)]

    # ---- agents join, change and leave

    def agent_joined(self, agent: Agent, now: float) -> list[Decision]:
        """An agent is ready to be given work."""
        decisions = self._look_at_needs(agent, now)
        joined = self.dispatch.agent_joined(agent.link, offer_of(agent, self.needs))
        return [*decisions, *self._start(joined, now), *self._weigh(agent, now)]

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """An agent has other slots or another model, or takes work again, or no longer."""
        decisions = self._look_at_needs(agent, now)
        offer = offer_of(agent, self.needs)
        for id in self.dispatch.running_on(agent.link):
            lifecycle = self._lifecycles[id]
            if lifecycle.model == agent.generates:
                lifecycle.fingerprint_known(agent.fingerprint)
            self._runs(lifecycle, offer.keys if offer.is_able else ())
        changed = self._start(self.dispatch.agent_changed(agent.link, offer), now)
        return [*decisions, *changed, *self._unbind(now), *self._weigh(agent, now)]

    def agent_suspended(self, agent: Agent) -> None:
        """An agent takes no more work, and will be gone in a moment. Starts nobody."""
        self.dispatch.agent_suspended(agent.link, offer_of(agent, self.needs))

    def agent_rested(self, agent: Agent, now: float) -> list[Decision]:
        """An agent that was full may be tried again."""
        return self._start(self.dispatch.agent_rested(agent.link), now)

    def measured(self, agent: Agent) -> None:
        """An agent has reported how full its cache is."""
        if agent.statistics is not None and agent.statistics.fetches is not None:
            self.dispatch.router.fetches.measured(agent.link, agent.statistics.fetches)
        has_cells = agent.model is None or agent.model.upstream is None
        if agent.statistics is not None and has_cells:
            cells = agent.statistics.cells
            held = cells.used + cells.kept + cells.parked
            self.dispatch.router.cache_is(agent.link, max(cells.total, held))

    def evicted(self, agent: Agent, evicted: Evicted) -> None:
        """Prefixes left an agent's cache."""
        router = self.dispatch.router
        router.evicted(agent.link, None if evicted.everything else evicted.keys)

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
            lifecycle = self._lifecycles.get(id)
            if lifecycle is None:  # it ended while a fault of ours was met
                ended.append(id)
                continue
            if not hung_up:
                lifecycle.moves.agent_lost(is_alone=len(running) == 1)
            if (error := loss_of(lifecycle)) is None:
                decisions.append(self._leave(lifecycle, reason, now))
            else:
                self._forget(lifecycle)
                ended.append(id)
                decisions += lifecycle.failed(error, now)
        left = self._start(self.dispatch.agent_left(agent.link, ended), now)
        return [*decisions, *left, *self._unbind(now), *self._weigh(agent, now)]

    # ---- what agents have shown

    def answered(self, agent: Agent, now: float, num: int = 1) -> list[Decision]:
        """So many answers of the agent have begun: it may have more requests at once."""
        if agent.is_retired or not agent.trust.answered(agent.slots, num):
            return []
        self._registry.touch(agent.link)
        return [*self._start(self._allow(agent), now), *self._weigh(agent, now)]

    def disappointed(self, agent: Agent, now: float) -> list[Decision]:
        """The agent left a request unanswered, or answered it wrongly: it may have fewer."""
        agent.trust.failed(now)
        link = self._registry.link_of(agent.hello.agent_id)
        if link is None:
            return []
        agent = self._registry[link]
        started = self._start(self._allow(agent), now)
        if agent.trust.is_open:
            self._registry.awaits_probe(agent)
            self._registry.touch(link)
            started += self._weigh(agent, now)
        return started

    def probed(self, agent: Agent, now: float) -> list[Decision]:
        """It is time for a probe of an agent that did not answer."""
        if agent.is_retired or not agent.trust.probe(now):
            return []
        return self._start(self._allow(agent), now)

    def _weigh(self, agent: Agent, now: float) -> list[Decision]:
        """An agent came, changed, left, or lost or won trust: others may be needed now, or not."""
        is_here = self.dispatch.has_agent(agent.link) and agent.takes_work and agent.slots > 0
        model = agent.generates if is_here else None
        is_open = agent.trust.is_open
        started: list[Decision] = []
        changed = self._needed.serves(agent.link, model, is_open=is_open)
        for link, is_needed in sorted(changed.items()):
            each = agent if link == agent.link else self._registry[link]
            each.trust.is_needed = is_needed
            if self.dispatch.has_agent(link):
                started += self._start(self._allow(each), now)
        return started

    def _allow(self, agent: Agent) -> list[Assign]:
        return self.dispatch.agent_allowed(agent.link, agent.trust.allowed)

    def _look_at_agent(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Nothing has come of an answer for a while: another agent may have a try.

        That is so if the present agent has done nothing at all for longer than it should take, or
        half of the time is over. There has to be time left, and an agent that starts it at once.
        """
        link = lifecycle.link
        if link is None or lifecycle.is_cancelling or lifecycle.is_leaving:
            return self._look_again(lifecycle, inf)
        agent = self._registry[link]
        expected = self.dispatch.router.seconds_to_first_token(link)
        half = self._limits.first_token_timeout / 2
        if expected is None or lifecycle.request.senses:  # how long media take is not known
            patience = half
        else:
            patience = min(max(self._least_patience, PATIENCE * expected), half)
        silent_since = max(lifecycle.assigned_at, agent.spoke_at)
        at = min(silent_since + patience, lifecycle.assigned_at + half)
        if now < at:
            return self._look_again(lifecycle, min(at, now + self._least_patience))
        if lifecycle.has_deserted and agent.trust.has_answered:
            return self._look_again(lifecycle, inf)  # once: the request may be what takes long
        wanted = self.dispatch.wanted_by(lifecycle.id)
        is_time_left = now + (expected or 0.0) < lifecycle.first_token_by()
        if not is_time_left or not self.dispatch.has_free_slot_besides(link, wanted):
            return self._look_again(lifecycle, now + self._least_patience)
        return self._desert(lifecycle, agent, now)

    def _look_again(self, lifecycle: RequestLifecycle, at: float) -> list[Decision]:
        lifecycle.look_at = at
        self._deadlines.arm(lifecycle.id)
        return []

    def _desert(self, lifecycle: RequestLifecycle, agent: Agent, now: float) -> list[Decision]:
        """Its agent never answered: another one begins. Nothing was delivered before."""
        stop = self._registry.send(agent.link, Cancel(id=lifecycle.id), now)
        lifecycle.has_deserted |= agent.trust.has_answered
        self._registry.rests(agent, now)
        disappointed = self.disappointed(agent, now)
        left = self._leave(lifecycle, "unanswered", now)
        back = self._start(self.dispatch.came_back(lifecycle.id), now)
        return [stop, *disappointed, left, *back]

    # ---- time

    def due(self, now: float) -> list[Decision]:
        """End those whose deadline has come; first those that wait, so that none of them starts.

        Those that waited long enough for one agent take any, and `batch` gives way to who waits.
        """
        decisions: list[Decision] = []
        due = [self._lifecycles[id] for id in self._deadlines.due(now)]
        for lifecycle in sorted(due, key=lambda e: e.link is not None):
            if (error := lifecycle.overdue(now)) is None:
                decisions += self._look_at_agent(lifecycle, now)
                continue
            if lifecycle.link is not None and error.code in _AGENTS_FAULT:
                decisions += self.disappointed(self._registry[lifecycle.link], now)
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
