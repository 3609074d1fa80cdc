"""What happens to requests: where each goes, and who gets the slot of one that ends.

Invariants: a request is here exactly when dispatch has it; its lifecycle is with the link that
dispatch has it on; its deadline is armed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ....shared.inference import AgentId, GenerateRequest, Reading, RequestId, Token
from ....shared.inference.prefix_peers import PrefixSource
from ....shared.messages import Cancel, Ended, Evicted, PromptProgress, PromptRead, Start
from ..caller import Caller
from ..change_log import ChangeLog
from ..circuit_breaker import Needed
from ..deadlines import Deadlines, earliest
from ..decisions import Decision, DeliverTokens, FirstToken, LinkId, Moved, Refuse
from ..lifecycle import NotServed, WhyNotServed
from ..limits import Limits
from ..load_shedding import Wait, least_ended, refusal_of
from ..priority_queue import PriorityQueue
from ..recorder import MoveReason
from ..registry import Agent, Registry
from ..routing.fetches import Tickets
from ..routing.policies import POLICIES
from ..routing.policy import LONGEST_WAIT, RoutingPolicy
from ..routing.rates import Measurement
from ..view import RequestView
from .delivered import Claim, Reported, consistent
from .dispatch.dispatch import AssignSlot, Dispatch
from .eligibility import ByText, Needs, Offer, QueueKey, RoutingRequest, model_of, routing_of
from .preemption import Foreground, Preemption, least_run
from .request_lifecycle import MAX_ISOLATED, SUSPECT_SECONDS, RequestLifecycle
from .waiting_room import WaitingRoom

_AGENTS_FAULT = (FirstTokenTimeout.code, TokenTimeout.code)
"""Codes of deadlines that agents have not met."""

_CANNOT_RESUME = AgentLost(
    "the balancer was restarted in the middle of the answer, and no agent can go on: the answer is "
    "too long, or its agent did not say which others could"
)

PATIENCE = 8.0
"""An agent may be silent for so many times as long as it is expected to take to a first token."""

LEAST_PATIENCE = 5.0
"""Seconds without a sign of an answer before it is asked whether the agent does anything at all."""

MOST_DESERTED = 8
"""Agents that a request leaves at most because they do not answer it."""

Gain = tuple[RequestLifecycle, Token]
"""What a request gained in a step."""


class Requests:
    """Every method that is an event returns decisions, to be carried out in their order.

    `tokens_kept` were delivered to requests that have not ended; `num_moves` are of all.
    """

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
        self._preemption = Preemption()
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
        """Requests that wait for one agent, and until when."""
        self._least_patience = min(LEAST_PATIENCE, limits.first_token_timeout / 2)
        self._bound: dict[RequestId, None] = {}
        """Requests that wait for agents like the one that began their answer: one was here."""
        self._needed = Needed()

    def __len__(self) -> int:
        return len(self._lifecycles)

    def __contains__(self, id: object) -> bool:
        return id in self._lifecycles

    def next_deadline(self) -> float | None:
        """Not later than the first request's deadline, or the next update for clients that wait."""
        first_held = self._held.first()
        until = None if first_held is None else first_held[0]
        return earliest(
            self._deadlines.next(),
            self.waiting_room.next_deadline(),
            until,
            self._preemption.next_deadline(self.dispatch.has_free_slot),
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
        if not assigned and (error := self._deadline_refusal(lifecycle)) is not None:
            self._forget(lifecycle)
            self.dispatch.ended(id)
            return [*decisions, *refuse(lifecycle, error, now)]
        return [*decisions, *self._start(assigned, now)]

    def resume(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Go on with one that another run of the balancer accepted; it ends where no agent can."""
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

    def _make_room(self, routing: RoutingRequest, now: float) -> list[Decision]:
        """End the one that has to go from a full queue for such a newcomer, if one has to."""
        id = self.dispatch.makes_room_for(routing)
        if id is None:
            return []
        lifecycle = self._lifecycles[id]
        wait = Wait(
            has_to_go=True,
            position=self.dispatch.place_of(id),
            retry_after=self.waiting_room.retry_after(lifecycle.request.model),
        )
        error = refusal_of(wait)
        return [] if error is None else self.fail(lifecycle, error, now)

    def _deadline_refusal(self, lifecycle: RequestLifecycle) -> QueueFull | None:
        """Deadline admission: why a newcomer is refused that would wait too long, if one is."""
        deadline_ms = lifecycle.request.deadline_ms
        seconds = self.waiting_room.sure_wait(lifecycle.id, least_ended(deadline_ms))
        key = self.dispatch.queue_key_of(lifecycle.id)
        is_batch = lifecycle.kind == "batch"
        if seconds is None or (not is_batch and self._preemption.may_help(key)):
            return None
        return refusal_of(
            Wait(
                seconds=seconds,
                longest=self._limits.buffered_request_timeout,
                deadline_ms=deadline_ms,
                position=self.dispatch.place_of(lifecycle.id),
                retry_after=self.waiting_room.retry_after(lifecycle.request.model),
            )
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
        """End those that wait for models of this name: they would wait in vain.

        Where a later attempt may help, those whose answer has begun wait for it.
        """
        waiting = [one for one in self._lifecycles.values() if one.link is None]
        decisions: list[Decision] = []
        for lifecycle in waiting:
            error = errors.get(lifecycle.request.model or "")
            if error is not None and not (error.retryable and lifecycle.has_streamed):
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
                self.waiting_room.began(lifecycle.id)
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

    def reads(self, lifecycle: RequestLifecycle, item: PromptProgress, now: float) -> None:
        """Its agent reads the prompt."""
        num_read = min(item.read_tokens, item.prompt_tokens)
        cached, seconds = min(item.cached_tokens, num_read), lifecycle.slot_seconds(now)
        lifecycle.reads(now)
        self.waiting_room.reads(
            lifecycle.id, Reading(num_read, item.prompt_tokens, cached, seconds)
        )

    def received(
        self, lifecycle: RequestLifecycle, item: Reported, now: float
    ) -> Iterable[Decision]:
        """Something of the answer, or about it, came."""
        if isinstance(item, PromptRead):
            cached = min(item.cached_tokens, item.prompt_tokens)
            self.dispatch.prompt_read(lifecycle.id, item.prompt_tokens, cached)
        was_streaming = lifecycle.is_streaming
        decisions = lifecycle.received(item, now)
        if not was_streaming and lifecycle.is_streaming:
            self.waiting_room.began(lifecycle.id)
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
        """The agent was asked to stop, and has: another gets it, unless its client cancelled it."""
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
        """An agent takes no more work, and will be gone in a moment. No request starts."""
        self.dispatch.agent_suspended(agent.link, offer_of(agent, self.needs))

    def agent_rested(self, agent: Agent, now: float) -> list[Decision]:
        """An agent that was full may be tried again."""
        return self._start(self.dispatch.agent_rested(agent.link), now)

    def measured(self, agent: Agent) -> None:
        """An agent has reported how full its cache is."""
        if agent.statistics is not None and agent.statistics.fetches is not None:
            self.dispatch.router.fetched(agent.link, agent.statistics.fetches)
        has_cells = agent.model is None or agent.model.upstream is None
        if agent.statistics is not None and has_cells:
            cells = agent.statistics.cells
            held = cells.used + cells.kept + cells.parked
            disk = agent.statistics.disk
            on_disk = 0 if disk is None else disk.cells
            self.dispatch.router.cache_is(agent.link, max(cells.total, held) + on_disk)

    def evicted(self, agent: Agent, evicted: Evicted) -> None:
        """Prefixes left an agent's cache."""
        router = self.dispatch.router
        router.evicted(agent.link, None if evicted.everything else evicted.keys)

    def agent_left(
        self,
        agent: Agent,
        reason: MoveReason,
        now: float,
        *,
        hung_up: bool = False,
        has_crashed: bool = False,
    ) -> list[Decision]:
        """Its requests go elsewhere, before all who wait; those that cannot end.

        They are no suspects if it `hung_up` in good order, as agents do when the balancer was
        silent: after a pause of the balancer all of them have. If it `has_crashed`, each request
        that it got just before may be the cause.
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
                is_early = has_crashed and not lifecycle.is_streaming
                lifecycle.moves.agent_lost(is_alone=len(running) == 1, is_early=is_early)
                if is_early and now - lifecycle.assigned_at <= SUSPECT_SECONDS:
                    self._isolate(lifecycle, agent.link, now)
            if (error := loss_of(lifecycle)) is None:
                decisions.append(self._leave(lifecycle, reason, now))
            else:
                self._forget(lifecycle)
                ended.append(id)
                decisions += lifecycle.failed(error, now)
        left = self._start(self.dispatch.agent_left(agent.link, ended), now)
        return [*decisions, *left, *self._unbind(now), *self._weigh(agent, now)]

    def _isolate(self, lifecycle: RequestLifecycle, leaves: LinkId, now: float) -> None:
        """Give a request that may have ended its agent to one without others, or let it wait."""
        self.dispatch.isolate(lifecycle.id)
        if self.dispatch.serves(self.dispatch.queue_key_of(lifecycle.id), besides=leaves):
            lifecycle.moves.isolated_until = now + MAX_ISOLATED

    # ---- what agents have shown

    def answered(self, agent: Agent, now: float, num: int = 1) -> list[Decision]:
        """`num` answers of the agent have begun: it may have more requests at once."""
        began = self._start(self.dispatch.began(agent.link), now)
        if agent.is_retired or not agent.breaker.answered(agent.slots, num):
            return began
        self._registry.touch(agent.link)
        return [*began, *self._start(self._allow(agent), now), *self._weigh(agent, now)]

    def disappointed(self, agent: Agent, now: float) -> list[Decision]:
        """The agent left a request unanswered, or answered it wrongly: it may have fewer."""
        agent.breaker.failed(now)
        link = self._registry.link_of(agent.hello.agent_id)
        if link is None:
            return []
        agent = self._registry[link]
        started = self._start(self._allow(agent), now)
        if agent.breaker.is_open:
            self._registry.awaits_probe(agent)
            self._registry.touch(link)
            started += self._weigh(agent, now)
        return started

    def probed(self, agent: Agent, now: float) -> list[Decision]:
        """It is time for a probe of an agent that did not answer."""
        if agent.is_retired or not agent.breaker.probe(now):
            return []
        return self._start(self._allow(agent), now)

    def _weigh(self, agent: Agent, now: float) -> list[Decision]:
        """An agent came, changed or left, or its circuit did: others may be needed now, or not."""
        is_here = self.dispatch.has_agent(agent.link) and agent.takes_work and agent.slots > 0
        model = agent.generates if is_here else None
        is_open = agent.breaker.is_open
        started: list[Decision] = []
        changed = self._needed.serves(agent.link, model, is_open=is_open)
        for link, is_needed in sorted(changed.items()):
            each = agent if link == agent.link else self._registry[link]
            each.breaker.is_needed = is_needed
            if self.dispatch.has_agent(link):
                started += self._start(self._allow(each), now)
        return started

    def _allow(self, agent: Agent) -> list[AssignSlot]:
        return self.dispatch.agent_allowed(agent.link, agent.breaker.allowed)

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
        if expected is None or lifecycle.request.has_media:  # how long media take is not known
            patience = half
        else:
            patience = min(max(self._least_patience, PATIENCE * expected), half)
        silent_since = max(lifecycle.progress_at, agent.spoke_at)
        at = min(silent_since + patience, lifecycle.progress_at + half)
        if now < at:
            return self._look_again(lifecycle, min(at, now + self._least_patience))
        if lifecycle.has_deserted and agent.breaker.has_answered:
            return self._look_again(lifecycle, inf)  # once: the request may be what takes long
        key = self.dispatch.queue_key_of(lifecycle.id)
        is_time_left = now + (expected or 0.0) < lifecycle.first_token_by()
        if not is_time_left or not self.dispatch.has_free_slot_besides(link, key):
            return self._look_again(lifecycle, now + self._least_patience)
        return self._desert(lifecycle, agent, now)

    def _look_again(self, lifecycle: RequestLifecycle, at: float) -> list[Decision]:
        lifecycle.look_at = at
        self._deadlines.arm(lifecycle.id)
        return []

    def _desert(self, lifecycle: RequestLifecycle, agent: Agent, now: float) -> list[Decision]:
        """Its agent never answered: another one begins. Nothing was delivered before."""
        stop = self._registry.message_to(agent.link, Cancel(id=lifecycle.id), now)
        lifecycle.has_deserted |= agent.breaker.has_answered
        self._registry.rests(agent, now)
        disappointed = self.disappointed(agent, now)
        left = self._leave(lifecycle, "unanswered", now)
        back = self._start(self.dispatch.came_back(lifecycle.id), now)
        return [stop, *disappointed, left, *back]

    # ---- time

    def due(self, now: float, why_not_served: WhyNotServed) -> list[Decision]:
        """End those whose deadline has come; first those that wait, so that none of them starts.

        Those that waited long enough for one agent take any, and `batch` requests are preempted for
        those that wait.
        """
        decisions: list[Decision] = []
        due = [self._lifecycles[id] for id in self._deadlines.due(now)]
        for lifecycle in sorted(due, key=lambda e: e.link is not None):
            lack = self._lack_of(lifecycle, why_not_served)
            if (error := lifecycle.overdue(now, lack)) is None:
                decisions += self._look_at_agent(lifecycle, now)
                continue
            if lifecycle.link is not None and error.code in _AGENTS_FAULT:
                decisions += self.disappointed(self._registry[lifecycle.link], now)
            decisions += self._give_up(lifecycle, error, now)
        for id in self._held.pop_until(now):
            decisions += self._start(self.dispatch.release(id), now)
        return [*decisions, *self._preempt(now)]

    def _lack_of(
        self, lifecycle: RequestLifecycle, why_not_served: WhyNotServed
    ) -> NotServed | None:
        """Why it waits, where that is for an agent and not for a slot."""
        if lifecycle.link is not None:
            return None
        key = self.dispatch.queue_key_of(lifecycle.id)
        return None if self.dispatch.num_slots_for(key) else why_not_served(model_of(key))

    def _preempt(self, now: float) -> list[Decision]:
        """Have agents stop `batch` requests whose slots others need; they go on later."""
        decisions: list[Decision] = []
        asked = self._preemption.due(now, self.dispatch.has_free_slot, self._may_be_preempted)
        for lifecycle in (self._lifecycles[id] for id in asked):
            decisions += self._stop(lifecycle, now)
            lifecycle.leaving_for = "gave_way"
        return decisions

    def _may_be_preempted(self, id: RequestId) -> bool:
        lifecycle = self._lifecycles[id]
        is_going = lifecycle.is_cancelling or lifecycle.is_leaving
        return lifecycle.can_move and not is_going

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

    # ---- the steps of a request: it starts, leaves its agent, is stopped, ends

    def fail(self, lifecycle: RequestLifecycle, error: RequestError, now: float) -> list[Decision]:
        """It ends with an error; the agent knows, or never had it."""
        return self._end(lifecycle, lifecycle.failed(error, now), now)

    def _start(self, assigned: Iterable[AssignSlot], now: float) -> list[Decision]:
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
            self.waiting_room.started(lifecycle.id, now)
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
                scope=lifecycle.caller.scope,
            )
            decisions.append(self._registry.message_to(assign.link, start, now))
        self._hold(now)
        return decisions

    def _lend(
        self, lifecycle: RequestLifecycle, assign: AssignSlot, now: float
    ) -> tuple[list[Decision], PrefixSource | None]:
        """What is sent to the lender of a prefix, and where it is to be had; if there is one."""
        fetching = assign.fetching
        if fetching is None or lifecycle.has_streamed or not self.tickets.are_there:
            return [], None  # who goes on with another agent's answer computes all of it
        ticket = self.tickets.draw(lifecycle.id)
        lend, source = fetching.agree(ticket)
        return [self._registry.message_to(fetching.source, lend, now)], source

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
        """Bind it to agents that can go on: like the one that it `leaves`, or others by text."""
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
        """Its client cancels it."""
        decisions = self._stop(lifecycle, now)
        lifecycle.is_cancelling = lifecycle.link is not None
        return decisions

    def _stop(self, lifecycle: RequestLifecycle, now: float) -> list[Decision]:
        """Tell the agent, if there is one, and only once."""
        is_stopping = lifecycle.is_cancelling or lifecycle.is_leaving
        if lifecycle.link is None or is_stopping:
            return []
        return [self._registry.message_to(lifecycle.link, Cancel(id=lifecycle.id), now)]

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

    # ---- where a request is counted

    def _forget(self, lifecycle: RequestLifecycle) -> None:
        del self._lifecycles[lifecycle.id]
        self.tokens_kept -= lifecycle.num_tokens
        self._deadlines.disarm(lifecycle.id)
        self._not_held(lifecycle.id)
        self.waiting_room.forget(lifecycle.id)
        self._preemption.stops(lifecycle.id)
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
        """It has no agent: `batch` requests are preempted for it, unless it is one."""
        self._preemption.stops(lifecycle.id)
        if lifecycle.kind != "batch":
            self._preemption.waits(lifecycle.id, self.dispatch.queue_key_of(lifecycle.id))

    def _runs(self, lifecycle: RequestLifecycle, keys: tuple[QueueKey, ...]) -> None:
        """It has an agent that takes requests of the queues `keys`."""
        if lifecycle.kind != "batch":
            self._preemption.stops(lifecycle.id)
        else:
            at = lifecycle.assigned_at + least_run(lifecycle.moves.num_preempted)
            self._preemption.runs(lifecycle.id, keys, at)

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
        return None if lifecycle.link is None else self._registry[lifecycle.link].host

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

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self.dispatch.check_integrity()
        self.needs.check_integrity()
        if len(self.foreground) != sum(e.kind != "batch" for e in self._lifecycles.values()):
            raise RuntimeError("requests above the class batch are miscounted")
        self.waiting_room.check_integrity()
        self._preemption.check_integrity()
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
        home=None if agent.disk is None else (agent.name, agent.disk),
        allowed=agent.breaker.allowed,
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


def _router(limits: Limits) -> RoutingPolicy:
    """The policy of `--routing`; requests that wait for one agent have time left for any other."""
    longest = min(LONGEST_WAIT, limits.buffered_request_timeout / 2)
    return POLICIES[limits.routing](longest)
