"""One request: its state, its agent, and the queue in which it waits.

A request is queued, assigned, streaming, and then ended.

If an agent refuses to start a request, is lost, or is asked to stop, the request returns to the
queue. The next agent continues after the delivered part, so the client receives nothing twice. A
request whose answer has begun moves only between agents with one fingerprint, or continues from
its text. A request that may be crashing its agents does not move.

Time with an agent does not count as waiting, so a returned request has the rest of its time in the
queue. A preempted request may wait until its total time ends. Each agent gets the full time for
its first token, and each report of the prompt's progress restarts this time.

Invariants: a request ends once, with one `Finish`; nothing is delivered after the end; the
deadline of the whole request never moves.
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
from ..routing.prefix_index import digest_of
from ..token_estimate import charge_of, charge_of_usage
from ..view import RequestState, RequestView
from .delivered import Claim, Delivered, Reported, consistent
from .dispatched import Dispatched
from .eligibility import Able, Alone, ByText, Engine, QueueKey, by_text_of, model_of
from .fair_order import Item

MAX_AGENTS_LOST = 3
"""After this many lost agents, the request counts as the cause and ends."""

MAX_LOST_EARLY = 2
"""The same number for agents that were lost before or just after they began to answer."""

SUSPECT_SECONDS = 2.0
"""A request is isolated if its agent disconnects within this many seconds after getting it.

A request may crash an engine within a second, and the balancer notices a little later. Of the
requests whose answers have begun, only the likeliest cause is isolated.
"""

ISOLATED_WAIT = 2.0
"""The seconds for which an isolated request waits for an agent without other requests.

Then an agent is reserved for the request. If the answer has begun, the request may share an agent
instead, so that its stream does not stop for long.
"""

MAX_LOST_ALONE = 2
"""A request ends after this many agents in a row were lost while they ran only this request."""


@dataclass(slots=True)
class Moves:
    """The moves of a request between agents, and the reason of the last move.

    - `num_preempted`: the moves that made room for other requests.
    - `num_lost_alone`: the agents in a row that were lost while they ran only this request.
    - `num_lost_early`: the agents that were lost before or just after they began to answer.
    - `empties_at`: the time at which an agent is reserved for the request, if it is isolated.
    """

    num: int = 0
    reason: MoveReason | None = None
    num_preempted: int = 0
    num_lost: int = 0
    num_lost_alone: int = 0
    num_lost_early: int = 0
    empties_at: float = inf

    def agent_lost(self, *, is_alone: bool, is_early: bool = False) -> None:
        """Count a lost agent. `is_alone` is true if the agent ran no other request.

        `is_early` is true if the agent was lost before or just after it began to answer.
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
        """The error that ends the request if the request may be crashing its agents, or `None`."""
        if self.num_lost_alone >= MAX_LOST_ALONE:
            return AgentLost(
                f"{MAX_LOST_ALONE} agents in a row were lost while they ran only this "
                "request, so it is the likely cause"
            )
        if self.num_lost_early >= MAX_LOST_EARLY:
            return AgentLost(
                f"{MAX_LOST_EARLY} agents were lost before or just after they began to answer "
                "this request, so it is the likely cause"
            )
        if self.num_lost >= MAX_AGENTS_LOST:
            return AgentLost(
                f"{MAX_AGENTS_LOST} agents were lost while they ran this request, so it is "
                "the likely cause"
            )
        return None

    def stuck(self, agent: str, seconds: float) -> RequestError:
        """Return the error of a request whose answer no agent could continue within `seconds`."""
        cause = f"no agent with the same model could continue the answer within {seconds:g} s"
        if self.reason in ("drained", "given_back"):
            return ShuttingDown(f"the agent {agent} was drained during the answer, and {cause}")
        if self.reason == "restarted":
            return AgentLost(f"the balancer was restarted during the answer, and {cause}")
        return AgentLost(f"the agent {agent} was lost during the answer, and {cause}")


_NO_RATES = Rates()


@dataclass(slots=True)
class Listener:
    """A client that receives events about waits of more than `after` seconds.

    `reading` is the progress of the prompt, or `None` if the request has no agent. The wait is
    checked at `deadline`.
    """

    request: "Request"
    after: float
    reading: Reading | None = None
    sent: Waiting | Reading | None = None
    sent_at: float = -inf
    deadline: float = inf
    armed_at: float | None = None


class Request(Lifecycle, Dispatched):
    """One request with its state. Queues, slots and lists contain these objects.

    The agent of the request:

    - `link`, `agent`: the present connection, and the name of the present or last agent.
    - `is_streaming`: the present agent has sent a part of the answer.
    - `is_leaving`: the agent was asked to stop so that another agent can continue.
    - `drops_rest`: further items of the leaving agent are ignored.
    - `fingerprint`: the fingerprint of the agent that began the answer, or of the present agent.
      `BY_TEXT` stands for several fingerprints, or for a server without a fingerprint.
    - `served_as`: the name of the model, including the adapter.
    - `claim`: the limits on what the agent may send.

    Agents that do not answer:

    - `has_deserted`: the request left an agent that had answered other requests.
    - `deserted`: the links of such agents, until they report that they have stopped.
    - `look_at`: the time to check whether the present agent works, if it has sent nothing.
    - `progress_at`: the time when the agent got the request or last reported progress.

    Agents that may take the request:

    - `bound_to`: the engine that must continue the begun answer.
    - `able`: the uncommon abilities that the agent needs, or the continuation from text.
    - `is_isolated`: the request may have crashed an agent, so it needs an agent without other
      requests.
    - `cache_key`: a number that requests of one caller with a common prefix share.

    The place in dispatch:

    - `arrival`: the request's number in order of arrival.
    - `slot`, `waits_for`: the agent whose slot the request has, or the queue in which it waits.
    - `place`, `turn`: explained in `fair_queue.py`.
    - `held_for`: an agent with much of the prompt cached, for which the request waits for a while.
    - `waited_for`: the agent for which the request waited before it started.
    - `may_be_dropped`: a full queue may drop the request, because no agent has had it yet.
    - `contest`, `contested`: explained in `preemption.py`.
    - `listener`: the client, if it wants events about the wait.
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
        """The time at which the time limit for the first token began."""
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
        """The queue in which the request waits if it is not held for one agent."""
        key = self.bound_to or self.able or self.asked.model
        return Alone(model_of(key), key) if self.is_isolated else key

    @property
    def flow(self) -> Flow | None:
        """The connection of a caller without a key, or `None` if the caller has a key."""
        return self.caller.flow

    @property
    def chain(self) -> PrefixChain:
        """The prefixes of the prompt, which identify the agents that have them cached."""
        if self._chain is None:
            self._chain = chain_of(self.asked)
        return self._chain

    @property
    def most_answer(self) -> int | None:
        """The maximum tokens of the answer, if the request limits them."""
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
        """Whether the agent was asked to stop so that another agent can continue."""
        return self.leaving_for is not None

    @property
    def drops_rest(self) -> bool:
        """Whether the request is leaving its agent and ignores the agent's further tokens.

        The further tokens of a preempted request count if their ids are known, because any engine
        can then continue after them.
        """
        if self.leaving_for is None:
            return False
        is_known = self.engine is not None and not self.engine.is_by_text
        return self.leaving_for != "gave_way" or not is_known

    @property
    def has_streamed(self) -> bool:
        """Whether the client has received a part of the answer or of the echoed prompt."""
        return self._is_resumed or self._first_token_at is not None

    @property
    def continuation(self) -> Continuation | None:
        """The continuation for an agent like the present agent; `None` before the answer."""
        return self.continuation_for(self.fingerprint)

    def continuation_for(self, fingerprint: str | None) -> Continuation | None:
        """Return the continuation for an agent with this fingerprint.

        Returns `None` if the answer has not begun.
        """
        if not self.has_streamed:
            return None
        has_ids = fingerprint == self.fingerprint and not _is_by_text(fingerprint)
        return self.delivered.by_ids if has_ids else self.delivered.by_text

    @property
    def engine(self) -> Engine | None:
        """The engine that can continue the answer, or `None`."""
        if self.model is None or self.fingerprint is None or not self.delivered.is_whole:
            return None
        engine = Engine(self.model, self.fingerprint)
        return engine if not engine.is_by_text or self.delivered.has_text else None

    @property
    def by_text(self) -> ByText | None:
        """The key of the agents that can continue the answer from its text, or `None`."""
        if self.model is None or self.fingerprint is None or not self.delivered.has_text:
            return None
        if not self.delivered.is_whole or not goes_on_anywhere(self.asked):
            return None
        origin = None if _is_by_text(self.fingerprint) else self.fingerprint
        return by_text_of(self.asked, self.model, origin)

    @property
    def can_move(self) -> bool:
        """Whether another agent can begin or continue the answer."""
        return not self.has_streamed or self.engine is not None or self.by_text is not None

    @property
    def origin(self) -> Origin:
        """The agent and the model of the answer."""
        return Origin(self.agent or "", self.served_as or "")

    @property
    def deadline(self) -> float:
        """The time of the next check: a deadline, a silent agent, or the end of a wait."""
        look_at = inf if self.is_streaming else self.look_at
        later = min(self.held_until, self.moves.empties_at)
        return min(self._stage_deadline, self.expires_at, look_at, later)

    @property
    def charge(self) -> int:
        """The computed tokens, which count in the caller's share."""
        return charge_of_usage(self.delivered.num_computed, self.num_tokens)

    def slot_seconds(self, now: float) -> float:
        """Return the seconds since the present agent got the request."""
        return now - self.assigned_at

    def view(self, agent: AgentId | None, now: float) -> RequestView:
        """Return the view of the request for operators. `agent` is the id of its agent."""
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
        """Resume a request that another run of the balancer accepted `age` seconds ago.

        The other run had `delivered` a part of the answer of `engine`. All time limits begin
        again.
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
        """Give the request to an agent that serves `model`, or that `forwards` to a server."""
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
        """Record the fingerprint of the agent's model if the request has no fingerprint yet."""
        if self.fingerprint is None:
            self.fingerprint = fingerprint

    def came_back(self, now: float) -> None:
        """Return the request from its agent to the queue."""
        self._require("assigned", "streaming")
        self.link = self._slot_at = None
        self.look_at = inf
        self.is_streaming = False
        self.leaving_for = None
        self.join_queue(now)

    def desert(self, now: float) -> Moved:
        """Take the request from an agent that did not answer and was asked to stop.

        The next agent has the rest of the time for the first token. Returns the record of the
        move.
        """
        if self.link is None:
            raise self._no_agent()
        self.deserted.add(self.link)
        slot_at = self._slot_at
        moved = self.moved("unanswered", now)
        self._slot_at = slot_at
        return moved

    def reads(self, now: float) -> None:
        """Record progress of the prompt, which restarts the time limit for the first token."""
        self.progress_at = self._slot_at = now

    def first_token_by(self) -> float:
        """Return the time limit for the first token. The request must have an agent."""
        slot_at = self.assigned_at if self._slot_at is None else self._slot_at
        return slot_at + self._limits.first_token_timeout

    def moved(self, reason: MoveReason, now: float) -> Moved:
        """Take the request from its agent, for another agent. Returns the record of the move."""
        self.moves.moved(reason)
        self.came_back(now)
        return Moved(self.id, reason, self.origin)

    def gained(self, token: Token, now: float) -> float | FirstToken:
        """Add text to the delivered part. Returns the seconds since the previous text.

        For the first text, the method returns the measurement of the first token.
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
        """Return the decisions that deliver a report about the answer.

        Returns none if the client has received the report.
        """
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
        """Begin the answer, and return the measurement of its first token."""
        self._first_token_at = self._last_token_at = now
        return FirstToken(now - self.accepted_at, self.origin)

    # ---- the end

    def done(self, end: Ended, now: float) -> list[Decision]:
        """End the request with the last message of its agent."""
        timings = self._timings(now, end.rates)
        usage = consistent(self.delivered.as_delivered(end.usage) if self.moves.num else end.usage)
        agent = self.agent or ""
        event = Done(end.finish_reason, usage, timings, agent, end.stop_string)
        finish = self._finish(end.finish_reason, usage, timings)
        return [*self._last_notice(), Deliver(self.id, event), finish]

    def failed(self, error: RequestError, now: float) -> list[Decision]:
        """End the request with an error."""
        return [*self._last_notice(), Deliver(self.id, Failed(error)), self.refused(error, now)]

    def refused(self, error: RequestError, now: float) -> Finish:
        """End the request with an error that is not delivered to its stream."""
        return self._finish_early(error.code, now, error)

    def gone(self, now: float) -> Finish:
        """End the request because its client has disconnected."""
        return self._finish_early("client_gone", now)

    def overdue(self, now: float, lack: NotServed | None = None) -> RequestError | None:
        """Return the error that must end the request if a deadline has passed at `now`, or `None`.

        `lack` is the reason why no agent serves the model, if none does.
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
        """End the request without a last message of its agent.

        The usage then counts the delivered tokens.
        """
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
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
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
    """Return a number for the cache key, which differs between callers with equal keys."""
    name = asked.cache_key or asked.prompt_cache_key
    if not name:
        return None
    return digest_of(account.name, account.address or "", asked.model or "", name)


def _served_as(model: str | None, asked: str | None) -> str | None:
    """Return `asked` if it is an adapter of `model`, or else `model`."""
    is_adapted = model and asked and asked.startswith(adapted_name(model, ""))
    return asked if is_adapted else model


def _is_by_text(fingerprint: str | None) -> bool:
    return fingerprint is not None and fingerprint.startswith(BY_TEXT)
