"""One request: its life, how it finds its agent, and where it waits.

It is queued, assigned, streaming, and ended; each may take some time.

A request goes back from its agent to the queue when the agent would not start it, was lost, or has
to let it go. Its life keeps what was delivered: the next agent goes on after that, and the client
gets nothing twice. One whose answer has begun moves only between agents of one fingerprint, and one
that may be what ends its agents moves no more.

The time that a request spends with an agent does not count as waiting: when it comes back, it has
what was left of its time in the queue. One that gave up its slot to others waits as long as the
whole request may take. Each agent has the time for its first token anew, and that time begins again
with each report that the agent reads the prompt.

Invariants: exactly one end, with one `Finish`; nothing is delivered after it; the deadline of the
whole request never moves.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Literal

from typing_extensions import TypeVar

from ....shared.continuation import BY_TEXT, Continuation
from ....shared.errors import (
    AgentLost,
    DeadlineExceeded,
    FirstTokenTimeout,
    RequestError,
    RequestTimeout,
    ShuttingDown,
    TokenTimeout,
)
from ....shared.inference import (
    AgentId,
    Done,
    Failed,
    GenerateRequest,
    Rates,
    Reading,
    RequestId,
    Timings,
    Token,
    ToolCall,
    ToolCallStarted,
    Usage,
    Waiting,
    goes_on_anywhere,
    goes_on_by_text,
    priority_class_of,
)
from ....shared.inference.adapters import adapted_name
from ....shared.inference.prefix_chain import PrefixChain, chain_of
from ....shared.messages import Ended
from ..caller import ANONYMOUS, Account, Caller, Flow
from ..decisions import Decision, Deliver, Finish, FirstToken, LinkId, Moved
from ..lifecycle import Lifecycle, NotServed
from ..limits import Limits
from ..recorder import Ending, MoveReason, Origin
from ..routing.cache_keys import digest_of
from ..token_estimate import charge_of, charge_of_usage
from ..view import RequestState, RequestView
from .delivered import Claim, Delivered, Reported, consistent
from .dispatched import Dispatched
from .eligibility import Able, Alone, ByText, Engine, QueueKey, by_text_of, model_of
from .fair_order import Item

MAX_AGENTS_LOST = 3
"""Agents that may be lost with a request before it is taken for the cause, and ends."""

MAX_LOST_EARLY = 2
"""Agents that may disconnect before they send anything of an answer: the same."""

SUSPECT_SECONDS = 2.0
"""A request is isolated if its agent disconnects so soon and has sent nothing of its answer.

An engine that dies within a second of getting it is noticed to be gone a little later.
"""

ISOLATED_WAIT = 2.0
"""Seconds that such a request waits for an agent without requests, as a restarted engine is.

Then an agent is emptied for it.
"""

MAX_LOST_ALONE = 2
"""Agents in a row that may be lost with a request while they had no other."""


@dataclass(slots=True)
class Moves:
    """A request's moves from agent to agent, and the reason of the last one.

    - `num_preempted` of them made room for others.
    - `num_lost_alone` agents in a row were lost while they ran this request alone.
    - `num_lost_early` agents were lost before they sent anything of its answer.
    - `empties_at`: when an agent is emptied for it, if it waits for one without other requests.
    """

    num: int = 0
    reason: MoveReason | None = None
    num_preempted: int = 0
    num_lost: int = 0
    num_lost_alone: int = 0
    num_lost_early: int = 0
    empties_at: float = inf

    def agent_lost(self, *, is_alone: bool, is_early: bool = False) -> None:
        """Its agent is gone; `is_alone` if that agent had no other request.

        `is_early` if that agent disconnected before it sent anything of the answer.
        """
        self.num_lost += 1
        self.num_lost_early += is_early
        self.num_lost_alone = self.num_lost_alone + 1 if is_alone else 0

    def moved(self, reason: MoveReason) -> None:
        """Count a move to another agent."""
        self.num += 1
        self.num_preempted += reason == "gave_way"
        self.reason = reason

    @property
    def suspicion(self) -> AgentLost | None:
        """The error of a request that may be what ends its agents."""
        if self.num_lost_alone >= MAX_LOST_ALONE:
            return AgentLost(
                f"{MAX_LOST_ALONE} agents in a row were lost while they ran nothing but this "
                "request, the likely cause"
            )
        if self.num_lost_early >= MAX_LOST_EARLY:
            return AgentLost(
                f"{MAX_LOST_EARLY} agents were lost before they began to answer this request, the "
                "likely cause"
            )
        if self.num_lost >= MAX_AGENTS_LOST:
            return AgentLost(
                f"{MAX_AGENTS_LOST} agents were lost while they ran this request, the likely cause"
            )
        return None

    def stuck(self, agent: str, seconds: float) -> RequestError:
        """The error of a begun answer with which no agent could go on within `seconds`."""
        cause = f"no agent with the same model could go on within {seconds:g} s"
        if self.reason in ("drained", "given_back"):
            return ShuttingDown(
                f"the agent {agent} was drained in the middle of the answer, and {cause}"
            )
        if self.reason == "restarted":
            return AgentLost(f"the balancer was restarted in the middle of the answer, and {cause}")
        return AgentLost(f"the agent {agent} was lost in the middle of the answer, and {cause}")


_NO_RATES = Rates()


@dataclass(slots=True)
class Listener:
    """A request's client, which hears of waits that take longer than `after` seconds.

    `reading` is how much of the prompt the agent has read; `None` while the request has no agent.
    The `deadline` is when to look whether there is something to send.
    """

    request: "Request"
    after: float
    reading: Reading | None = None
    sent: Waiting | Reading | None = None
    sent_at: float = -inf
    deadline: float = inf
    armed_at: float | None = None


class Request(Lifecycle, Dispatched):
    """One request, with all that is known of it. Queues, slots and lists hold these records.

    `link` is the socket of the agent it is with, `agent` that agent's name or the last one's.

    `is_streaming`: this agent has sent something of the answer. `is_leaving`: this agent was asked
    to stop, so that another goes on; with `drops_rest` what it sends until then is of no use.
    `fingerprint` is that of the agent whose answer has begun, or of the present one. `BY_TEXT`
    alone: the answer came from agents with several, or from a server without one. It counts for
    the model `served_as`, which has the name of the adapter, too. Its agent may say what is in
    `claim`.

    With `has_deserted` it left an agent that did not answer it, though others before. `deserted`
    are the links of agents that it left so, until they say that they have stopped. As long as
    nothing has come from the present agent, `look_at` is when to look whether that does anything.
    `progress_at` is when that agent last said that it reads the prompt, or when it got the request.

    How it finds an agent: one that is `bound_to` an engine goes on there with an answer that has
    begun. What it needs may not be for every agent, or its answer goes on by text: it is for those
    that are `able`. One that `is_isolated` may have ended its agent: it goes to one without others.
    Of one caller's requests, those with the same `cache_key` belong together.

    Where dispatch has it: it came as number `arrival` and has a slot of the agent `slot`, or waits
    for the agents that `waits_for` means. `place`, `turn`: see `fair_queue.py`. It is `held_for` an
    agent that has computed much of its prompt, for a while; or had `waited_for` one when it
    started. It `may_be_dropped` for others as long as it has had no agent. Its `listener` hears how
    it waits, if its client wants that. `contest` and `contested`: see `preemption.py`.
    """

    __slots__ = (
        "_chain",
        "_first_token_at",
        "_is_resumed",
        "_last_token_at",
        "_slot_at",
        "able",
        "arrival",
        "assigned_at",
        "bound_to",
        "cache_key",
        "claim",
        "contest",
        "contested",
        "delivered",
        "deserted",
        "emptied",
        "expected_charge",
        "fingerprint",
        "has_deserted",
        "held_for",
        "held_until",
        "is_cancelling",
        "is_ended",
        "is_isolated",
        "is_streaming",
        "kind",
        "leaving_for",
        "link",
        "listener",
        "look_at",
        "may_be_dropped",
        "moves",
        "num_tokens",
        "place",
        "progress_at",
        "served_as",
        "slot",
        "turn",
        "waited_for",
        "waits_for",
        "was_held",
    )

    asked: GenerateRequest

    def __init__(
        self,
        id: RequestId,
        asked: GenerateRequest,
        limits: Limits,
        now: float,
        *,
        caller: Caller = ANONYMOUS,
    ) -> None:
        super().__init__(id, asked, limits, now, caller=caller)
        self.kind = priority_class_of(asked.priority)
        self.served_as = asked.model
        if asked.deadline_ms is not None:
            self.expires_at = min(self.expires_at, now + asked.deadline_ms / 1000)
        self.link: LinkId | None = None
        self.fingerprint: str | None = None
        self.is_cancelling = False
        self.leaving_for: MoveReason | None = None
        self.is_streaming = False
        self.is_ended = False
        self.num_tokens = 0
        self.delivered = Delivered()
        if goes_on_by_text(asked):
            self.delivered.keep_text()
        self.moves = Moves()
        self.assigned_at = self.progress_at = now
        self.claim = Claim()
        self._slot_at: float | None = None
        """Since when its time for the first token runs."""
        self.look_at = inf
        self.has_deserted = False
        self.deserted: set[LinkId] = set()
        self._first_token_at: float | None = None
        self._is_resumed = False
        self._last_token_at = now
        self._chain: PrefixChain | None = None
        self.cache_key = _cache_key(asked, self.account)
        self.expected_charge = charge_of(asked)
        self.bound_to: Engine | None = None
        self.able: Able | ByText | None = None
        self.is_isolated = False
        self.arrival = 0
        self.slot: LinkId | None = None
        self.waits_for: QueueKey = None
        self.place: Item[Hashable, QueueKey, Request] | None = None
        self.turn: Item[Account, QueueKey, None] | None = None
        self.held_for: LinkId | None = None
        self.emptied: LinkId | None = None
        self.waited_for: LinkId | None = None
        self.was_held = False
        self.held_until = inf
        self.may_be_dropped = False
        self.listener: Listener | None = None
        self.contest: Literal["waits", "runs", "asked"] | None = None
        self.contested: tuple[QueueKey, ...] = ()

    # ---- how it finds its agent

    @property
    def queue_key(self) -> QueueKey:
        """The key of the queue it waits in, unless it is held for one agent."""
        key = self.bound_to or self.able or self.asked.model
        return Alone(model_of(key), key) if self.is_isolated else key

    @property
    def flow(self) -> Flow | None:
        """Its caller's connection, where that has no key."""
        return self.caller.flow

    @property
    def chain(self) -> PrefixChain:
        """The beginnings of its prompt, by which agents are found that hold them."""
        if self._chain is None:
            self._chain = chain_of(self.asked)
        return self._chain

    @property
    def most_answer(self) -> int | None:
        """The most tokens of its answer, if it says how many."""
        return 0 if self.asked.prefill_only else self.asked.max_tokens

    # ---- its state

    @property
    def state(self) -> RequestState:
        """The state of a request that has not ended."""
        if self.link is None:
            return "queued"
        return "streaming" if self.is_streaming else "assigned"

    @property
    def is_leaving(self) -> bool:
        """Whether the agent was asked to stop so that another can continue."""
        return self.leaving_for is not None

    @property
    def drops_rest(self) -> bool:
        """Whether it is leaving its agent, whose further tokens do not count.

        The tokens of a preempted request count if their ids are known: then any engine can continue
        after them.
        """
        if self.leaving_for is None:
            return False
        is_known = self.engine is not None and not self.engine.is_by_text
        return self.leaving_for != "gave_way" or not is_known

    @property
    def has_streamed(self) -> bool:
        """Whether a part of the answer was delivered: text or a call."""
        return self._is_resumed or self._first_token_at is not None

    @property
    def continuation(self) -> Continuation | None:
        """The continuation for an agent like its present one; `None` if it begins anew."""
        return self.continuation_for(self.fingerprint)

    def continuation_for(self, fingerprint: str | None) -> Continuation | None:
        """The continuation for an agent with this fingerprint."""
        if not self.has_streamed:
            return None
        has_ids = fingerprint == self.fingerprint and not _is_by_text(fingerprint)
        return self.delivered.by_ids if has_ids else self.delivered.by_text

    @property
    def engine(self) -> Engine | None:
        """The agents like this one, if they can go on with its answer."""
        if self.model is None or self.fingerprint is None or not self.delivered.is_whole:
            return None
        engine = Engine(self.model, self.fingerprint)
        return engine if not engine.is_by_text or self.delivered.has_text else None

    @property
    def by_text(self) -> ByText | None:
        """The other agents that can go on with its answer, if any can."""
        if self.model is None or self.fingerprint is None or not self.delivered.has_text:
            return None
        if not self.delivered.is_whole or not goes_on_anywhere(self.asked):
            return None
        origin = None if _is_by_text(self.fingerprint) else self.fingerprint
        return by_text_of(self.asked, self.model, origin)

    @property
    def can_move(self) -> bool:
        """Whether another agent can continue or begin it."""
        return not self.has_streamed or self.engine is not None or self.by_text is not None

    @property
    def origin(self) -> Origin:
        """The origin of its answer."""
        return Origin(self.agent or "", self.served_as or "")

    @property
    def deadline(self) -> float:
        """When `overdue` will return an error, or to look at its agent; unless something comes.

        Or when it has been held, or has waited for an agent without others, for long enough.
        """
        look_at = inf if self.is_streaming else self.look_at
        later = min(self.held_until, self.moves.empties_at)
        return min(self._stage_deadline, self.expires_at, look_at, later)

    @property
    def charge(self) -> int:
        """Its charge on the caller's share: tokens that were computed for it."""
        return charge_of_usage(self.delivered.num_computed, self.num_tokens)

    def slot_seconds(self, now: float) -> float:
        """Seconds for which its present agent has had it."""
        return now - self.assigned_at

    def view(self, agent: AgentId | None, now: float) -> RequestView:
        """The view of it for others; `agent` is the id of its agent."""
        return RequestView(
            id=self.id,
            state=self.state,
            model=self.asked.model,
            agent=agent,
            waited_seconds=self.waited(now),
            age_seconds=now - self.accepted_at,
            num_tokens=self.num_tokens,
            priority=self.asked.priority or 0,
            caller=self.caller.name,
            moves=self.moves.num,
        )

    def resume(self, delivered: Delivered, engine: Engine | None, age: float) -> None:
        """Resume a request that another run of the balancer accepted `age` seconds before.

        The former run delivered a part of the answer of `engine`. Its deadlines begin anew.
        """
        self.accepted_at -= age
        self.delivered = delivered
        self.num_tokens = delivered.num_tokens
        self._is_resumed = delivered.has_begun
        if self._is_resumed:
            self.model, self.fingerprint = engine or (self.model, None)
            self.served_as = _served_as(self.model, self.asked.model)
            self.moves.moved("restarted")
        if not goes_on_by_text(self.asked):
            delivered.drop_text()

    # ---- with an agent, and without

    def assigned(
        self,
        link: LinkId,
        agent: str,
        now: float,
        *,
        model: str | None = None,
        fingerprint: str | None = None,
        forwards: bool = False,
    ) -> None:
        """It was given to an agent that serves `model`, or `forwards` it to a server."""
        self._require("queued")
        self.model = model or self.model
        self.served_as = _served_as(self.model, self.asked.model)
        if not self.has_streamed:
            self.fingerprint = fingerprint or (BY_TEXT if forwards else None)
        elif fingerprint != self.fingerprint:
            self.fingerprint = BY_TEXT
        self.leave_queue(agent, now)
        self.moves.empties_at = self.held_until = inf
        self.assigned_at = self.progress_at = now
        self._slot_at = now if self._slot_at is None else self._slot_at
        self.link = link

    def fingerprint_known(self, fingerprint: str | None) -> None:
        """Its agent says what the answer is bound to; an agent that changes is still the same."""
        if self.fingerprint is None:
            self.fingerprint = fingerprint

    def came_back(self, now: float) -> None:
        """Its agent does not have it any more: it waits for the next."""
        self._require("assigned", "streaming")
        self.link = self._slot_at = None
        self.look_at = inf
        self.is_streaming = False
        self.leaving_for = None
        self.join_queue(now)

    def desert(self, now: float) -> Moved:
        """Its agent never answered, and was asked to stop: it waits for another.

        That one has what is left of the time for the first token.
        """
        if self.link is None:
            raise self._no_agent()
        self.deserted.add(self.link)
        slot_at = self._slot_at
        moved = self.moved("unanswered", now)
        self._slot_at = slot_at
        return moved

    def reads(self, now: float) -> None:
        """Its agent reads the prompt: the time for the next token runs from here."""
        self.progress_at = self._slot_at = now

    def first_token_by(self) -> float:
        """When its answer has to have begun; it has an agent."""
        slot_at = self.assigned_at if self._slot_at is None else self._slot_at
        return slot_at + self._limits.first_token_timeout

    def moved(self, reason: MoveReason, now: float) -> Moved:
        """Take it back from its agent, for another one. Returns the record of the move."""
        self.moves.moved(reason)
        self.came_back(now)
        return Moved(self.id, reason, self.origin)

    def gained(self, token: Token, now: float) -> float | FirstToken:
        """Text came from the agent, to be delivered: the seconds since the text before.

        For the first text of an answer, it is the measurement instead.
        """
        if self.link is None or self.is_ended:
            raise self._no_agent()
        self.num_tokens += len(token.tokens)
        self.delivered.add(token)
        self.is_streaming = True
        if self._first_token_at is None and not self._is_resumed:
            return self._stream(now)
        gap = now - self._last_token_at
        self._last_token_at = now
        return gap

    def received(self, item: Reported, now: float) -> tuple[Decision, ...]:
        """The agent sent something of the answer or about it: deliver it, unless it was before."""
        if self.link is None or self.is_ended:
            raise self._no_agent()
        event = self.delivered.event_of(item)
        if event is None:
            return ()
        deliver = Deliver(self.id, event)
        is_answer = isinstance(event, ToolCallStarted | ToolCall)
        if self.is_streaming or not is_answer:
            return (deliver,)
        self.is_streaming = True
        if not self.has_streamed:
            return (deliver, self._stream(now))
        self._last_token_at = now
        return (deliver,)

    def _stream(self, now: float) -> FirstToken:
        """The answer begins."""
        self._first_token_at = self._last_token_at = now
        return FirstToken(now - self.accepted_at, self.origin)

    # ---- the end

    def done(self, end: Ended, now: float) -> list[Decision]:
        """The agent says it ended well."""
        timings = self._timings(now, end.rates)
        usage = consistent(self.delivered.as_delivered(end.usage) if self.moves.num else end.usage)
        agent = self.agent or ""
        event = Done(end.finish_reason, usage, timings, agent, end.stop_string)
        finish = self._finish(end.finish_reason, usage, timings)
        return [*self._last_notice(), Deliver(self.id, event), finish]

    def failed(self, error: RequestError, now: float) -> list[Decision]:
        """End it with an error."""
        return [*self._last_notice(), Deliver(self.id, Failed(error)), self.refused(error, now)]

    def refused(self, error: RequestError, now: float) -> Finish:
        """End it with an error that is not delivered through its stream."""
        return self._finish_early(error.code, now, error)

    def gone(self, now: float) -> Finish:
        """Its client has gone, so there is no one to deliver an end to."""
        return self._finish_early("client_gone", now)

    def overdue(self, now: float, lack: NotServed | None = None) -> RequestError | None:
        """The error it has to end with at `now`, if a deadline has passed.

        `lack`: no agent serves its model.
        """
        if now < min(self._stage_deadline, self.expires_at):
            return None
        limits = self._limits
        if self.expires_at <= self._stage_deadline:
            if self.expires_at < self.accepted_at + limits.request_timeout:
                return DeadlineExceeded(f"not finished within {self.asked.deadline_ms} ms")
            return RequestTimeout(f"not finished within {limits.request_timeout:g} s")
        match self.state:
            case "queued":
                return self._waited_too_long(lack, now)
            case "assigned":
                return FirstTokenTimeout(f"no progress within {limits.first_token_timeout:g} s")
            case "streaming":
                return TokenTimeout(f"no further token within {limits.token_timeout:g} s")

    # ---- inside

    @property
    def _stage_deadline(self) -> float:
        limits = self._limits
        match self.state:
            case "queued":
                is_certain = self.moves.num_preempted or self.emptied is not None
                return inf if is_certain else self._queue_deadline
            case "assigned":
                return self.first_token_by()
            case "streaming":
                return max(self._last_token_at, self.progress_at) + limits.token_timeout

    def _waited_too_long(self, lack: NotServed | None, now: float) -> RequestError:
        if self.has_streamed:
            return self.moves.stuck(self.agent or "", self._limits.buffered_request_timeout)
        return self._queue_timeout("no slot was free", lack)

    def _last_notice(self) -> list[Decision]:
        last = self.delivered.last_notice
        return [] if last is None else [Deliver(self.id, last)]

    def _finish_early(self, code: str, now: float, error: RequestError | None = None) -> Finish:
        """End it without its agent's last word: the delivered tokens count as used."""
        usage = self.delivered.usage(self.num_tokens)
        return self._finish(code, usage, self._timings(now, _NO_RATES), error)

    def _finish(
        self, code: str, usage: Usage, timings: Timings, error: RequestError | None = None
    ) -> Finish:
        if self.is_ended:
            raise ValueError(f"request {self.id} has ended already")
        self.is_ended = True
        return Finish(
            Ending(
                code=code,
                request_id=self.id,
                agent=self.agent,
                caller=self.caller,
                model=self.served_as,
                usage=usage,
                timings=timings,
                error=error,
                is_suspect=self.moves.suspicion is not None,
                priority_class=self.kind,
            )
        )

    def _timings(self, now: float, rates: Rates) -> Timings:
        first = self._first_token_at
        return Timings(
            queue_ms=self.waited(now) * 1000,
            first_token_ms=None if first is None else (first - self.accepted_at) * 1000,
            total_ms=self.total_ms(now),
            prefill_tokens_per_second=rates.prefill_tokens_per_second,
            decode_tokens_per_second=rates.decode_tokens_per_second,
            moves=self.moves.num,
        )

    def _no_agent(self) -> ValueError:
        return ValueError(f"request {self.id} has no agent to receive from")

    def _require(self, *states: RequestState) -> None:
        if self.state not in states or self.is_ended:
            expected = " or ".join(states)
            raise ValueError(f"request {self.id} is {self.state}, not {expected}, or has ended")

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if (self.is_streaming or self.is_leaving) and self.link is None:
            raise RuntimeError(f"{self.id} streams from no agent")
        if self.is_streaming and not self.has_streamed:
            raise RuntimeError(f"{self.id} streams and never began")
        if (self._queued_at is None) != (self.link is not None):
            raise RuntimeError(f"{self.id} counts its waiting wrongly")
        if self._waited < 0 or self.num_tokens < 0:
            raise RuntimeError(f"{self.id} counts backwards")


D = TypeVar("D", bound=Dispatched, default=Request)
"""An item of dispatch."""


def _cache_key(asked: GenerateRequest, account: Account) -> int | None:
    """The key of a caller's prompts. The same name, chosen by another caller, is another key."""
    name = asked.cache_key or asked.prompt_cache_key
    if not name:
        return None
    return digest_of(account.name, account.address or "", asked.model or "", name)


def _served_as(model: str | None, asked: str | None) -> str | None:
    """The name that an agent serves: the asked-for one, if it is an adapter of `model`."""
    is_adapted = model and asked and asked.startswith(adapted_name(model, ""))
    return asked if is_adapted else model


def _is_by_text(fingerprint: str | None) -> bool:
    return fingerprint is not None and fingerprint.startswith(BY_TEXT)
