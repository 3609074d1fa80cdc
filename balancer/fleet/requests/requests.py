"""All requests of the fleet: each event of clients and agents is one method.

Invariants: a request has not ended exactly while dispatch has it; its link is the link of its slot
in dispatch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from ....shared.inference import GenerateRequest, Reading, RequestId, Token
from ....shared.inference.prefix_peers import PrefixSource
from ....shared.messages import Cancel, Ended, Evicted, PromptProgress, PromptRead, Start
from ..caller import Caller
from ..change_log import ChangeLog
from ..circuit_breaker import Needed
from ..deadlines import earliest
from ..decisions import Decision, DeliverTokens, FirstToken, LinkId, Moved, Refuse
from ..lifecycle import Lives, NotServed, WhyNotServed
from ..limits import Limits
from ..queue_full import Wait, least_ended, refusal_of
from ..recorder import MoveReason
from ..registry import Agent, Registry
from ..routing.fetches import Tickets
from ..routing.policies import policy_of
from ..routing.policy import LONGEST_WAIT, RoutingPolicy
from ..routing.rates import Measurement
from .delivered import Claim, Reported, consistent
from .dispatch.dispatch import AssignSlot, Dispatch
from .eligibility import Able, ByText, Offer, QueueKey, UncommonNeeds, model_of
from .preemption import Foreground, Preemption, least_run
from .request import ISOLATED_WAIT, SUSPECT_SECONDS, Request
from .waiting_room import WaitingRoom

_AGENTS_FAULT = (FirstTokenTimeout.code, TokenTimeout.code)
"""The codes of errors that mean that an agent missed a deadline."""

_CANNOT_RESUME = AgentLost(
    "the balancer was restarted during the answer, and no agent can continue it: the "
    "answer is too long, or its agent did not report its model's fingerprint"
)

PATIENCE = 8.0
"""An agent may be silent for this many times its expected time to the first token."""

LEAST_PATIENCE = 5.0
"""The minimum seconds without a sign of life after which the balancer checks an agent."""

MOST_DESERTED = 8
"""The maximum number of agents that a request leaves because they do not answer."""

Gain = tuple[Request, Token]
"""A request, and a token of its answer."""


class Requests:
    """All requests. Each event is a method, and returns decisions to carry out in order.

    `tokens_kept` counts the tokens that were delivered to running requests. `num_moves` counts the
    moves of all requests.
    """

    def __init__(
        self,
        limits: Limits,
        registry: Registry,
        changes: ChangeLog,
        lives: Lives,
        ticket_secret: bytes = b"",
    ) -> None:
        self.tickets = Tickets(ticket_secret)
        self.dispatch = Dispatch(limits.max_buffered_requests, _router(limits))
        self.waiting_room = WaitingRoom(self.dispatch)
        self.foreground = Foreground()
        self.needs = UncommonNeeds()
        self._preemption = Preemption()
        self._limits = limits
        self._registry = registry
        self._changes = changes
        self._lives = lives
        self.tokens_kept = 0
        self.num_moves = 0
        self._least_patience = min(LEAST_PATIENCE, limits.first_token_timeout / 2)
        self._needed = Needed()

    def next_deadline(self) -> float | None:
        """Return the time to call `due`, for the next event about waits or the next preemption."""
        return earliest(
            self.waiting_room.next_deadline(),
            self._preemption.next_deadline(self.dispatch.has_free_slot),
        )

    def demands(self) -> Iterator[tuple[str | None, int, float]]:
        """Return each model with waiting requests, their number and their first arrival."""
        demands: dict[str | None, tuple[int, float]] = {}
        for request in self.dispatch.waiting:
            model = model_of(request.waits_for)
            num, since = demands.get(model, (0, inf))
            demands[model] = (num + 1, min(since, request.accepted_at))
        return ((model, num, since) for model, (num, since) in demands.items())

    # ---- what clients do

    def admit(
        self,
        id: RequestId,
        asked: GenerateRequest,
        caller: Caller,
        now: float,
        *,
        tell_waiting: float | None = None,
    ) -> list[Decision]:
        """Accept a new request, or refuse it if the queue is full.

        If the queue is full and the caller has few requests, a request of another caller is
        dropped.
        """
        request = Request(id, asked, self._limits, now, caller=caller)
        self._look_at_need(request)
        decisions = self._make_room(request, now)
        assigned = self.dispatch.enqueue(request)
        if isinstance(assigned, Refuse):
            self.needs.left(request.able)
            assigned.error.retry_after = self.waiting_room.retry_after(asked.model)
            return [*decisions, *refuse(request, assigned.error, now)]
        self._came(request, now)
        self.waiting_room.admitted(request, tell_waiting, now)
        if request.slot is None:
            self._waits(request)
        if not assigned and (error := self._deadline_refusal(request)) is not None:
            self._forget(request)
            self.dispatch.ended(request)
            return [*decisions, *refuse(request, error, now)]
        return [*decisions, *self._start(assigned, now)]

    def resume(self, request: Request, now: float) -> list[Decision]:
        """Resume a request of an earlier run. The request ends if no agent can continue it."""
        id = request.id
        self._bind_resumed(request)
        assigned = self.dispatch.resume(request)
        self.tokens_kept += request.num_tokens
        self._came(request, now)
        self._waits(request)
        if not request.can_move:
            return self.fail(request, _CANNOT_RESUME, now)
        moved = [Moved(id, "restarted", request.origin)] if request.has_streamed else []
        return [*moved, *self._start(assigned, now)]

    def _bind_resumed(self, request: Request) -> None:
        """Choose the agents that may take a resumed request."""
        by_text, engine = request.by_text, request.engine
        if not request.has_streamed:
            self._look_at_need(request)
        elif by_text is None or (engine is not None and self.dispatch.serves(engine)):
            request.bound_to = engine
        else:
            self._needs(request, by_text)

    def _make_room(self, newcomer: Request, now: float) -> list[Decision]:
        """End the request that a full queue drops for `newcomer`, if any."""
        request = self.dispatch.makes_room_for(newcomer)
        if request is None:
            return []
        wait = Wait(
            has_to_go=True,
            position=self.dispatch.place_of(request),
            retry_after=self.waiting_room.retry_after(request.asked.model),
        )
        error = refusal_of(wait)
        return [] if error is None else self.fail(request, error, now)

    def _deadline_refusal(self, request: Request) -> QueueFull | None:
        """Return the error for a new request whose expected wait is too long, or `None`."""
        deadline_ms = request.asked.deadline_ms
        seconds = self.waiting_room.sure_wait(request, least_ended(deadline_ms))
        key = request.queue_key
        is_batch = request.kind == "batch"
        if seconds is None or (not is_batch and self._preemption.may_help(key)):
            return None
        return refusal_of(
            Wait(
                seconds=seconds,
                longest=self._limits.buffered_request_timeout,
                deadline_ms=deadline_ms,
                position=self.dispatch.place_of(request),
                retry_after=self.waiting_room.retry_after(request.asked.model),
            )
        )

    def renamed(self, names: Mapping[str, str], now: float) -> list[Decision]:
        """Move waiting requests to the queues of the new names of their models.

        `names` has the new name for each old name.
        """
        renamed = self.dispatch.following(names)
        for request in renamed:
            former = request.asked.model
            if former is None or former not in names:
                continue
            request.asked = replace(request.asked, model=names[former])
            if request.kind != "batch":
                self.foreground.renamed(former, names[former])
        assigned = self.dispatch.renamed(renamed)
        for request in renamed:
            self._waits(request)
            self._changes.advance()
        return self._start(assigned, now)

    def close(self, request: Request, now: float) -> list[Decision]:
        """End a request whose client has disconnected, and cancel the request at its agent."""
        return [*self._cancel(request, now), *self._end(request, [request.gone(now)], now)]

    def cancel(self, requests: Iterable[Request], now: float) -> list[Decision]:
        """End the waiting requests, and cancel the running requests at their agents.

        The agents free the slots later.
        """
        decisions: list[Decision] = []
        for request in requests:
            if request.link is None:
                decisions += self.fail(request, Cancelled("cancelled before it started"), now)
            else:
                decisions += self._cancel(request, now)
        return decisions

    # ---- what agents send

    def gained(
        self, gains: Sequence[Gain], now: float
    ) -> tuple[DeliverTokens, Sequence[FirstToken], int]:
        """Deliver the tokens of one step of an agent.

        Returns the delivery, the measurements of first tokens, and the number of begun answers.
        """
        tokens: list[tuple[RequestId, Token]] = []
        gaps: list[float] = []
        firsts: list[FirstToken] = []
        num_tokens = 0
        num_begun = 0
        for request, token in gains:
            num_tokens += len(token.tokens)
            was_streaming = request.is_streaming
            gap = request.gained(token, now)
            if not was_streaming:
                num_begun += 1
                self.waiting_room.stops(request)
                self._lives.arm(request)
            if isinstance(gap, FirstToken):
                firsts.append(gap)
            else:
                num = len(token.tokens) or 1
                gaps += [gap / num] * num
            tokens.append((request.id, token))
        self.tokens_kept += num_tokens
        self._changes.advance()
        origin = gains[0][0].origin
        return DeliverTokens(tuple(tokens), num_tokens, tuple(gaps), origin), firsts, num_begun

    def reads(self, request: Request, item: PromptProgress, now: float) -> None:
        """Record that the agent reads the request's prompt."""
        num_read = min(item.read_tokens, item.prompt_tokens)
        cached, seconds = min(item.cached_tokens, num_read), request.slot_seconds(now)
        request.reads(now)
        self.waiting_room.reads(request, Reading(num_read, item.prompt_tokens, cached, seconds))

    def received(self, request: Request, item: Reported, now: float) -> Iterable[Decision]:
        """Return the decisions for a text of the answer or a report about the answer."""
        if isinstance(item, PromptRead):
            cached = min(item.cached_tokens, item.prompt_tokens)
            self.dispatch.prompt_read(request, item.prompt_tokens, cached)
        was_streaming = request.is_streaming
        decisions = request.received(item, now)
        if not was_streaming and request.is_streaming:
            self.waiting_room.stops(request)
            self._lives.arm(request)
        self._changes.advance()
        return decisions

    def done(self, request: Request, end: Ended, now: float) -> list[Decision]:
        """End a request with the last message of its agent."""
        measured = self._measured(request, end, now)
        return self._end(request, request.done(end, now), now, measured)

    def _measured(self, request: Request, end: Ended, now: float) -> Measurement | None:
        """Return the agent's measurement, or `None` if other agents made a part of the answer."""
        if request.link is None or request.moves.num or end.finish_reason == "cancelled":
            return None
        running = self.dispatch.num_running_on(request.link)
        usage = consistent(end.usage)
        return Measurement(usage, end.rates, running, request.slot_seconds(now))

    def hand_back(self, request: Request, now: float) -> list[Decision]:
        """Return a request to the queue because its agent did not start it.

        If the client has cancelled the request, it ends.
        """
        if request.is_cancelling:
            return self.fail(request, Cancelled("cancelled before it started"), now)
        if request.is_streaming:
            return self.fail(request, EngineFailed("given back after it had started"), now)
        self._unassign(request, now)
        return self._start(self.dispatch.came_back(request), now)

    def give_back(self, request: Request, error: RequestError, now: float) -> list[Decision]:
        """Move a request that its agent stops early, or end it with `error` if it cannot move."""
        if request.is_cancelling or not request.is_streaming:
            return self.hand_back(request, now)
        if not request.can_move:
            return self.fail(request, error, now)
        return self._move(request, "given_back", now)

    def lost_server(self, request: Request, error: RequestError, now: float) -> list[Decision]:
        """Move a request whose agent lost its server, or end it with `error` if it cannot move."""
        if request.is_cancelling:
            return self.fail(request, Cancelled("cancelled; its server was lost"), now)
        request.moves.agent_lost(is_alone=False)
        if (suspicion := request.moves.suspicion) is not None:
            return self.fail(request, suspicion, now)
        if not (request.is_streaming and request.can_move):
            return self.fail(request, error, now)
        return self._move(request, "lost", now)

    def let_go(self, request: Request, now: float) -> list[Decision]:
        """Move a request that its agent has stopped after the balancer asked for this.

        If the client has cancelled the request, it ends.
        """
        if request.is_cancelling:
            return self.fail(request, Cancelled("cancelled while it moved"), now)
        if not request.can_move:
            stopped = (
                f"the agent {request.agent} has stopped, and no other agent can continue the answer"
            )
            return self.fail(request, AgentLost(stopped), now)
        reason: MoveReason = "gave_way" if request.leaving_for == "gave_way" else "drained"
        left = self._leave(request, reason, now)
        return [left, *self._start(self.dispatch.gave_way(request), now)]

    # ---- agents join, change and leave

    def agent_joined(self, agent: Agent, now: float) -> list[Decision]:
        """Add an agent that is ready for work."""
        decisions = self._look_at_needs(agent, now)
        joined = self.dispatch.agent_joined(agent.link, offer_of(agent, self.needs))
        return [*decisions, *self._start(joined, now), *self._weigh(agent, now)]

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """Use an agent's new slots or model, or its new readiness to take requests."""
        decisions = self._look_at_needs(agent, now)
        offer = offer_of(agent, self.needs)
        for request in self.dispatch.running_on(agent.link):
            if request.model == agent.generates:
                request.fingerprint_known(agent.fingerprint)
            self._runs(request, offer.keys if offer.is_able else ())
        changed = self._start(self.dispatch.agent_changed(agent.link, offer), now)
        return [*decisions, *changed, *self._unbind(now), *self._weigh(agent, now)]

    def agent_suspended(self, agent: Agent) -> None:
        """Give no more requests to an agent that is about to leave."""
        self.dispatch.agent_offers(agent.link, offer_of(agent, self.needs))

    def agent_rested(self, agent: Agent, now: float) -> list[Decision]:
        """Give requests again to an agent that was full."""
        return self._start(self.dispatch.agent_rested(agent.link), now)

    def measured(self, agent: Agent) -> None:
        """Use the statistics of an agent: the size of its cache, and its prefix fetches."""
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
        """Forget prefixes that an agent has evicted from its cache."""
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
        """Move the requests of an agent that left to the head of the queue, or end them.

        If the agent `hung_up` in good order, its requests are not suspected; agents hang up when
        the balancer was silent. If the agent `has_crashed`, each request that it got just before
        may be the cause.
        """
        decisions: list[Decision] = []
        ended = []
        running = self.dispatch.running_on(agent.link)
        new = [each for each in running if now - each.assigned_at <= SUSPECT_SECONDS]
        worst = max(new, key=_suspiciousness, default=None)
        for request in running:
            if request.id not in self._lives:  # it ended while a fault of ours was met
                ended.append(request)
                continue
            if not hung_up:
                is_early = has_crashed and (not request.is_streaming or request is worst)
                request.moves.agent_lost(is_alone=len(running) == 1, is_early=is_early)
                if is_early and request in new:
                    self._isolate(request, now)
            if (error := loss_of(request)) is None:
                decisions.append(self._leave(request, reason, now))
            else:
                self._forget(request)
                ended.append(request)
                decisions += request.failed(error, now)
        left = self._start(self.dispatch.agent_left(agent.link, ended), now)
        return [*decisions, *left, *self._unbind(now), *self._weigh(agent, now)]

    def _isolated_for_long(self, request: Request, now: float) -> list[AssignSlot]:
        """Reserve an agent for a request that has been isolated for too long.

        If the answer has begun, end the isolation of the request.
        """
        if request.has_streamed:
            request.moves.empties_at = inf
            assigned = self.dispatch.end_isolation(request)
        else:
            request.moves.empties_at = now + ISOLATED_WAIT
            assigned = self.dispatch.empty_for(request)
        if request.slot is None:
            self._lives.arm(request)
        return assigned

    def _isolate(self, request: Request, now: float) -> None:
        """Let a request that may crash agents wait for an agent without other requests."""
        self.dispatch.isolate(request)
        request.moves.empties_at = now + ISOLATED_WAIT

    # ---- what agents have shown

    def answered(self, agent: Agent, now: float, num: int = 1) -> list[Decision]:
        """Record that an agent began `num` answers, which may raise its limit of requests."""
        began = self._start(self.dispatch.began(agent.link), now)
        if agent.is_retired or not agent.breaker.answered(agent.slots, num):
            return began
        self._registry.touch(agent.link)
        return [*began, *self._start(self._allow(agent), now), *self._weigh(agent, now)]

    def disappointed(self, agent: Agent, now: float) -> list[Decision]:
        """Record that an agent did not answer a request, which lowers its limit of requests."""
        agent.breaker.failed(now)
        link = self._registry.link_of(agent.hello.agent_id)
        if link is None:
            return []
        agent = self._registry[link]
        started = self._start(self._allow(agent), now)
        if agent.breaker.is_open:
            self._registry.arm(agent)
            self._registry.touch(link)
            started += self._weigh(agent, now)
        return started

    def probed(self, agent: Agent, now: float) -> list[Decision]:
        """Send a probe to an agent with an open circuit, if a probe is due."""
        if agent.is_retired or not agent.breaker.probe(now):
            return []
        return self._start(self._allow(agent), now)

    def _weigh(self, agent: Agent, now: float) -> list[Decision]:
        """Find the needed agents again, after an agent or its circuit breaker changed."""
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

    def _look_at_agent(self, request: Request, now: float) -> list[Decision]:
        """Move a silent request to another agent if an agent can start the request at once.

        A request is silent if its agent has sent nothing for it. The request moves if the silence
        is longer than expected or half of the time for the first token is over, and enough time is
        left.
        """
        link = request.link
        if link is None or request.is_cancelling or request.is_leaving:
            return self._look_again(request, inf)
        agent = self._registry[link]
        expected = self.dispatch.router.seconds_to_first_token(link)
        half = self._limits.first_token_timeout / 2
        if expected is None or request.asked.has_media:  # how long media take is not known
            patience = half
        else:
            patience = min(max(self._least_patience, PATIENCE * expected), half)
        silent_since = max(request.progress_at, agent.spoke_at)
        at = min(silent_since + patience, request.progress_at + half)
        if now < at:
            return self._look_again(request, min(at, now + self._least_patience))
        if request.has_deserted and agent.breaker.has_answered:
            return self._look_again(request, inf)  # once: the request may be what takes long
        key = request.queue_key
        is_time_left = now + (expected or 0.0) < request.first_token_by()
        if not is_time_left or not self.dispatch.has_free_slot_besides(link, key):
            return self._look_again(request, now + self._least_patience)
        return self._desert(request, agent, now)

    def _look_again(self, request: Request, at: float) -> list[Decision]:
        request.look_at = at
        self._lives.arm(request)
        return []

    def _desert(self, request: Request, agent: Agent, now: float) -> list[Decision]:
        """Move a request from an agent that never answered the request."""
        stop = self._registry.message_to(agent.link, Cancel(id=request.id), now)
        request.has_deserted |= agent.breaker.has_answered
        self._registry.rests(agent, now)
        disappointed = self.disappointed(agent, now)
        left = self._leave(request, "unanswered", now)
        back = self._start(self.dispatch.came_back(request), now)
        return [stop, *disappointed, left, *back]

    # ---- time

    def due(
        self, due: Sequence[Request], now: float, why_not_served: WhyNotServed
    ) -> list[Decision]:
        """End overdue requests, waiting requests first, so that none of them starts.

        Also releases held requests, reserves agents for isolated requests, and preempts `batch`
        requests.
        """
        decisions: list[Decision] = []
        for request in sorted(due, key=lambda e: e.link is not None):
            lack = self._lack_of(request, why_not_served)
            if (error := request.overdue(now, lack)) is None:
                if request.link is not None:
                    decisions += self._look_at_agent(request, now)
                continue
            if request.link is not None and error.code in _AGENTS_FAULT:
                decisions += self.disappointed(self._registry[request.link], now)
            decisions += self._give_up(request, error, now)
        for request in due:
            if request.held_until <= now and not request.is_ended:
                request.held_until = inf
                self._lives.arm(request)
                decisions += self._start(self.dispatch.release(request), now)
            if request.moves.empties_at <= now and not request.is_ended:
                decisions += self._start(self._isolated_for_long(request, now), now)
        return [*decisions, *self._preempt(now)]

    def _lack_of(self, request: Request, why_not_served: WhyNotServed) -> NotServed | None:
        """Return why no agent serves the model of a waiting request.

        Returns `None` if agents serve the model and the request waits for a slot.
        """
        if request.link is not None:
            return None
        key = request.queue_key
        return None if self.dispatch.num_slots_for(key) else why_not_served(model_of(key))

    def _preempt(self, now: float) -> list[Decision]:
        """Ask agents to stop `batch` requests whose slots other requests need.

        The stopped requests continue later.
        """
        decisions: list[Decision] = []
        asked = self._preemption.due(now, self.dispatch.has_free_slot, self._may_be_preempted)
        for request in asked:
            decisions += self._stop(request, now)
            request.leaving_for = "gave_way"
        return decisions

    def _may_be_preempted(self, request: Request) -> bool:
        is_going = request.is_cancelling or request.is_leaving
        return request.can_move and not is_going

    # ---- many at once

    def end(self, errors: Mapping[Request, RequestError], now: float) -> list[Decision]:
        """End requests with their errors, waiting requests first, so that none of them starts."""
        decisions: list[Decision] = []
        for request in sorted(errors, key=lambda e: e.link is not None):
            decisions += self._give_up(request, errors[request], now)
        return decisions

    def move_from(self, link: LinkId, error: RequestError, now: float) -> list[Decision]:
        """Ask an agent to stop its requests, so that other agents continue them.

        A request moves after the agent has confirmed the stop, so that it never runs on two
        agents. Requests that cannot move end with `error`.
        """
        decisions: list[Decision] = []
        for request in self.dispatch.running_on(link):
            if request.is_cancelling:
                continue
            if request.can_move:
                decisions += self._stop(request, now)
                request.leaving_for = request.leaving_for or "drained"
            else:
                decisions += self._give_up(request, error, now)
        return decisions

    # ---- the steps of a request: it starts, leaves its agent, is stopped, ends

    def fail(self, request: Request, error: RequestError, now: float) -> list[Decision]:
        """End a request with an error. Its agent, if any, knows that the request has ended."""
        return self._end(request, request.failed(error, now), now)

    def _start(self, assigned: Iterable[AssignSlot], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for assign in assigned:
            request = assign.request
            agent = self._registry[assign.link]
            if assign.link in request.deserted:
                # It has not answered the cancel of this very request: as if it were full.
                self._registry.rests(agent, now)
                decisions += self._start(self.dispatch.came_back(request), now)
                continue
            continuation = request.continuation_for(agent.fingerprint)
            request.assigned(
                assign.link,
                agent.name,
                now,
                model=agent.generates,
                fingerprint=agent.fingerprint,
                forwards=agent.forwards,
            )
            request.claim = Claim.of(request.asked, agent.model, request.delivered)
            self.waiting_room.started(request, now)
            is_batch = request.kind == "batch"
            self._runs(request, offer_of(agent, self.needs).keys if is_batch else ())
            if not (request.has_streamed or len(request.deserted) == MOST_DESERTED):
                request.look_at = now + self._least_patience
            self._lives.arm(request)
            self._changes.advance()
            self._registry.touch(assign.link)
            agent.used_at = now
            lends, fetch = self._lend(request, assign, now)
            decisions += lends
            start = Start(
                id=request.id,
                request=_for_agent(request.asked),
                continuation=continuation,
                traceparent=request.caller.traceparent,
                fetch=fetch,
                scope=request.caller.scope,
            )
            decisions.append(self._registry.message_to(assign.link, start, now))
        self._hold(now)
        return decisions

    def _lend(
        self, request: Request, assign: AssignSlot, now: float
    ) -> tuple[list[Decision], PrefixSource | None]:
        """Return the message to the lender of a prefix, and the source for the borrower.

        Both are empty if the agent fetches no prefix.
        """
        fetching = assign.fetching
        if fetching is None or request.has_streamed or not self.tickets.are_there:
            return [], None  # who goes on with another agent's answer computes all of it
        ticket = self.tickets.draw(request.id)
        lend, source = fetching.agree(ticket)
        return [self._registry.message_to(fetching.source, lend, now)], source

    def _hold(self, now: float) -> None:
        """Set the deadlines of requests that began to wait for one agent."""
        for hold in self.dispatch.take_holds():
            if hold.request.held_for is not None:
                hold.request.held_until = now + hold.seconds
                self._lives.arm(hold.request)

    def _unassign(self, request: Request, now: float) -> None:
        if request.has_streamed:
            self._bind(request, leaves=None)
        self._touch_agent(request)
        request.came_back(now)
        self._waits(request)
        self.waiting_room.waits(request, now)
        self._lives.arm(request)
        self._changes.advance()

    def _move(self, request: Request, reason: MoveReason, now: float) -> list[Decision]:
        """Move a request that its agent has stopped to the head of the queue."""
        left = self._leave(request, reason, now)
        return [left, *self._start(self.dispatch.came_back(request), now)]

    def _leave(self, request: Request, reason: MoveReason, now: float) -> Moved:
        if request.has_streamed:
            stays = reason == "gave_way"
            self._bind(request, leaves=None if stays else request.link)
        self._touch_agent(request)
        self.num_moves += 1
        moved = request.desert(now) if reason == "unanswered" else request.moved(reason, now)
        self._waits(request)
        self.waiting_room.waits(request, now)
        self._lives.arm(request)
        self._changes.advance()
        return moved

    def _bind(self, request: Request, leaves: LinkId | None) -> None:
        """Bind a request to the agents that can continue its answer.

        These agents are like the agent that the request `leaves`, or continue from text.
        """
        engine = request.engine
        if engine is not None and self.dispatch.serves(engine, besides=leaves):
            self.dispatch.bind(request, engine)
        elif request.by_text is not None:
            self._by_text(request, request.by_text)
        elif engine is not None:
            self.dispatch.bind(request, engine)

    def _by_text(self, request: Request, by_text: ByText) -> None:
        self._needs(request, by_text)
        self.dispatch.goes_on_by_text(request, by_text)

    def _unbind(self, now: float) -> list[Decision]:
        """Let waiting requests continue from their text if no agent has their engine."""
        bound = [each for each in self.dispatch.waiting if each.bound_to is not None]
        freed = []
        for request in sorted(bound):
            if request.engine is not None and self.dispatch.serves(request.engine):
                continue
            if (by_text := request.by_text) is not None:
                self._by_text(request, by_text)
                self._waits(request)
                freed.append(request)
        return self._start(self.dispatch.retry(freed), now) if freed else []

    def _cancel(self, request: Request, now: float) -> list[Decision]:
        """Cancel a request for its client."""
        decisions = self._stop(request, now)
        request.is_cancelling = request.link is not None
        return decisions

    def _stop(self, request: Request, now: float) -> list[Decision]:
        """Ask the agent of a request to stop it, once."""
        is_stopping = request.is_cancelling or request.is_leaving
        if request.link is None or is_stopping:
            return []
        return [self._registry.message_to(request.link, Cancel(id=request.id), now)]

    def _give_up(self, request: Request, error: RequestError, now: float) -> list[Decision]:
        return [*self._stop(request, now), *self.fail(request, error, now)]

    def _end(
        self,
        request: Request,
        last: list[Decision],
        now: float,
        measured: Measurement | None = None,
    ) -> list[Decision]:
        """End a request with the decisions `last`, and give its slot to a waiting request."""
        self._forget(request)
        if request.link is not None:
            self._registry[request.link].used_at = now
            self.waiting_room.freed_slot(request.model, request.slot_seconds(now))
        ended = self.dispatch.ended(request, measured, charge=request.charge)
        return [*last, *self._start(ended, now)]

    # ---- where a request is counted

    def _forget(self, request: Request) -> None:
        self._lives.remove(request)
        self.tokens_kept -= request.num_tokens
        self.waiting_room.stops(request)
        self._preemption.stops(request)
        if request.kind != "batch":
            self.foreground.left(request.asked.model)
        self.needs.left(request.able)
        self._touch_agent(request)

    def _waits(self, request: Request) -> None:
        """Record that a request waits. If it is no `batch` request, it may preempt others."""
        if request.kind == "batch":
            self._preemption.stops(request)
        else:
            self._preemption.waits(request, request.queue_key)

    def _runs(self, request: Request, keys: tuple[QueueKey, ...]) -> None:
        """Record that a request runs on an agent that serves the queues `keys`."""
        if request.kind != "batch":
            self._preemption.stops(request)
        else:
            at = request.assigned_at + least_run(request.moves.num_preempted)
            self._preemption.runs(request, keys, at)

    def _came(self, request: Request, now: float) -> None:
        """Record a new request."""
        self._lives.add(request)
        if request.kind != "batch":
            self.foreground.came(request.asked.model, now)
        if request.slot is None:  # otherwise it starts at once, and is armed then
            self._lives.arm(request)

    def _touch_agent(self, request: Request) -> None:
        if request.link is not None:
            self._registry.touch(request.link)

    # ---- what not every agent can do

    def _look_at_need(self, request: Request) -> None:
        """Record the uncommon needs of a new request, and let agents offer them."""
        if (able := self.needs.key_of(request.asked)) is not None:
            self._needs(request, able)

    def _needs(self, request: Request, able: Able | ByText) -> None:
        """Change the needs of a request, and let agents offer them."""
        self.needs.left(request.able)
        request.able = able
        if self.needs.came(able):
            self._offer_anew()

    def _offer_anew(self) -> None:
        """Renew the offers of all agents, because the needs of requests have changed."""
        for agent in self._registry:
            if self.dispatch.has_agent(agent.link):
                self.dispatch.agent_offers(agent.link, offer_of(agent, self.needs))

    def _look_at_needs(self, agent: Agent, now: float) -> list[Decision]:
        """Make sure that `agent` gets no request that needs an ability which it lacks."""
        if agent.generates is None or not self.needs.seen(agent.abilities):
            return []
        narrowed = []
        for request in self._all():
            is_bound = request.has_streamed  # to who goes on with its answer
            if not is_bound and (able := self.needs.key_of(request.asked)) is not None:
                self.needs.left(request.able)
                self.needs.came(able)
                self.dispatch.narrow(request, able)
                narrowed.append(request)
        self._offer_anew()
        return self._start(self.dispatch.retry(narrowed), now)

    def _all(self) -> list[Request]:
        return [each for each in self._lives if isinstance(each, Request)]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        live = self._all()
        self.dispatch.check_integrity()
        self.needs.check_integrity(each.able for each in live)
        if len(self.foreground) != sum(e.kind != "batch" for e in live):
            raise RuntimeError("requests above the class batch are miscounted")
        self.waiting_room.check_integrity()
        self._preemption.check_integrity(live)
        if self.tokens_kept != sum(each.num_tokens for each in live):
            raise RuntimeError("the kept tokens are miscounted")
        for request in live:
            request.check_integrity()
            if request.is_ended:
                raise RuntimeError(f"{request.id} has ended")
            if request.link != request.slot:
                raise RuntimeError(f"{request.id} is not where dispatch has it")
        if len(live) != self.dispatch.num_waiting + self.dispatch.num_running:
            raise RuntimeError("dispatch has a request that has ended")


def _for_agent(asked: GenerateRequest) -> GenerateRequest:
    """Return the request without the fields that only the queue and the routing use."""
    if asked.deadline_ms is None and asked.prompt_cache_key is None:
        return asked
    return replace(asked, deadline_ms=None, prompt_cache_key=None)


def offer_of(agent: Agent, needs: UncommonNeeds) -> Offer:
    """Return the agent's offer to dispatch."""
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


def refuse(request: Request, error: RequestError, now: float) -> list[Decision]:
    """Return the decisions that refuse a new request with `error`."""
    return [Refuse(request.id, error), request.refused(error, now)]


def _suspiciousness(request: Request) -> tuple[int, bool, float, int]:
    """Return the sort key of a lost agent's requests: the likeliest cause is the greatest."""
    num_lost, has_begun = request.moves.num_lost_early, request.is_streaming
    return num_lost, not has_begun, request.assigned_at, request.arrival


def loss_of(request: Request) -> RequestError | None:
    """Return the error that ends a request of a lost agent, or `None` if the request can move."""
    if request.is_cancelling:
        return Cancelled("cancelled; the agent was lost before it answered")
    if (suspicion := request.moves.suspicion) is not None:
        return suspicion
    if not request.can_move:
        return AgentLost(f"the agent {request.agent} was lost during the answer")
    return None


def _router(limits: Limits) -> RoutingPolicy:
    """Return the routing policy of `limits`.

    A request may wait for one agent for at most half of its time in the queue.
    """
    longest = min(LONGEST_WAIT, limits.buffered_request_timeout / 2)
    return policy_of(limits.routing)(longest)
