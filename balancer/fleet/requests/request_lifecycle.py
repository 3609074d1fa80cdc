"""One request's life: queued, assigned, streaming, ended; and how long each may take.

A request may go from assigned back to queued when its agent would not start it or was lost, but
never after a part of the answer was delivered. Notices and the prompt's length may have been
delivered before: of the next agent's, only new ones are delivered. The time it spends
with an agent does not count as waiting: when it comes back, it has what was left of its time in the
queue.

Invariants: exactly one end, with one `Finish`; nothing is delivered after it; the deadline of the
whole request never moves.
"""

from dataclasses import replace

from ....shared.errors import (
    FirstTokenTimeout,
    QueueTimeout,
    RequestError,
    RequestTimeout,
    TokenTimeout,
)
from ....shared.inference import (
    AgentId,
    Begun,
    Done,
    Failed,
    GenerateRequest,
    Notice,
    Rates,
    RequestId,
    Timings,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from ....shared.messages import Called, CallStarted, Ended, Noticed, PromptRead
from ..caller import ANONYMOUS, Caller
from ..decisions import Decision, Deliver, Finish, FirstToken, LinkId
from ..lifecycle import Lifecycle
from ..limits import Limits
from ..recorder import Ending, Origin
from ..view import RequestState, RequestView

_NO_RATES = Rates()

MAX_NOTICES = 64
"""Notices that a request's client gets; further ones are counted, and the last notice says so."""

Told = CallStarted | Called | Noticed | PromptRead
"""What an agent sends of an answer or about it, besides its pieces and its end."""


class RequestLifecycle(Lifecycle):
    """`link` is the socket of the agent it is with, `agent` that agent's name or the last one's."""

    __slots__ = (
        "_assigned_at",
        "_begun",
        "_first_token_at",
        "_last_token_at",
        "_notices",
        "_num_notices",
        "_num_notices_left_out",
        "is_cancelling",
        "is_ended",
        "link",
        "num_tokens",
        "request",
    )

    def __init__(
        self,
        id: RequestId,
        request: GenerateRequest,
        limits: Limits,
        now: float,
        *,
        caller: Caller = ANONYMOUS,
    ) -> None:
        super().__init__(id, limits, now, caller=caller, model=request.model)
        self.request = request
        self.link: LinkId | None = None
        self.is_cancelling = False
        self.is_ended = False
        self.num_tokens = 0
        self._assigned_at = now
        self._first_token_at: float | None = None
        self._last_token_at = now
        self._begun: Begun | None = None
        self._notices: set[Notice] = set()
        self._num_notices = 0
        self._num_notices_left_out = 0

    @property
    def state(self) -> RequestState:
        """Where it is in its life, as long as it lives."""
        if self.has_streamed:
            return "streaming"
        return "queued" if self.link is None else "assigned"

    @property
    def has_streamed(self) -> bool:
        """Whether anything of the answer was delivered: text or a call."""
        return self._first_token_at is not None

    @property
    def origin(self) -> Origin:
        """Where its answer comes from."""
        return Origin(self.agent or "", self.model or "")

    @property
    def deadline(self) -> float:
        """When `overdue` will return an error, unless something happens before."""
        return min(self._stage_deadline, self.expires_at)

    def slot_seconds(self, now: float) -> float:
        """How long the agent that it is with has had it."""
        return now - self._assigned_at

    def view(self, agent: AgentId | None, now: float) -> RequestView:
        """As others see it; `agent` is the id of the one it is with."""
        return RequestView(
            id=self.id,
            state=self.state,
            model=self.request.model,
            agent=agent,
            waited_seconds=self.waited(now),
            age_seconds=now - self.accepted_at,
            num_tokens=self.num_tokens,
            priority=self.request.priority,
        )

    # ---- with an agent, and without

    def assigned(self, link: LinkId, agent: str, now: float, *, model: str | None = None) -> None:
        """It was given to an agent, which serves `model`."""
        self._require("queued")
        self.model = model or self.model
        self._leave_queue(agent, now)
        self._assigned_at = now
        self.link = link

    def came_back(self, now: float) -> None:
        """The agent did not start it, or was lost before anything was delivered."""
        self._require("assigned")
        self.link = None
        self._join_queue(now)

    def gained(self, num_tokens: int, now: float) -> float | FirstToken:
        """Text came from the agent, to be delivered: the seconds since the text before.

        Of the first text of an answer, the measurement instead.
        """
        if self.link is None or self.is_ended:
            raise self._no_agent()
        self.num_tokens += num_tokens
        if self._first_token_at is None:
            return self._stream(now)
        gap = now - self._last_token_at
        self._last_token_at = now
        return gap

    def received(self, item: Told, now: float) -> tuple[Decision, ...]:
        """The agent sent something of the answer or about it: deliver it, unless it was before."""
        self._require_agent()
        match item:
            case CallStarted():
                return self._call(ToolCallStarted(item.call_id, item.name), now)
            case Called():
                return self._call(ToolCall(item.call_id, item.name, item.arguments), now)
            case Noticed():
                return self._notice(Notice(item.code, item.message))
            case PromptRead():
                return self._begin(Begun(item.prompt_tokens, item.cached_tokens))

    def _call(self, event: ToolCallStarted | ToolCall, now: float) -> tuple[Decision, ...]:
        """A call is a part of the answer, so the request does not move any more."""
        deliver = Deliver(self.id, event)
        return (deliver,) if self.has_streamed else (deliver, self._stream(now))

    def _notice(self, notice: Notice) -> tuple[Decision, ...]:
        if notice in self._notices:
            return ()
        if self._num_notices == MAX_NOTICES:
            self._num_notices_left_out += 1
            return ()
        self._num_notices += 1
        if not self.has_streamed:
            self._notices.add(notice)
        return (Deliver(self.id, notice),)

    def _begin(self, begun: Begun) -> tuple[Decision, ...]:
        if self._begun is not None:
            return ()
        self._begun = begun
        return (Deliver(self.id, begun),)

    def _stream(self, now: float) -> FirstToken:
        """The answer begins. No other agent will repeat a notice, so they need no remembering."""
        self._first_token_at = self._last_token_at = now
        self._notices.clear()
        return FirstToken(now - self.accepted_at, self.origin)

    # ---- the end

    def done(self, end: Ended, now: float) -> list[Decision]:
        """The agent says it ended well."""
        timings = self._timings(now, end.rates)
        agent = self.agent or ""
        event = Done(end.finish_reason, end.usage, timings, agent, end.stop_string)
        finish = self._finish(end.finish_reason, now)
        ending = replace(finish.ending, usage=end.usage, timings=timings)
        return [*self._last_notice(), Deliver(self.id, event), Finish(ending)]

    def failed(self, error: RequestError, now: float) -> list[Decision]:
        """It ends with an error."""
        return [*self._last_notice(), Deliver(self.id, Failed(error)), self.refused(error, now)]

    def refused(self, error: RequestError, now: float) -> Finish:
        """It ends with an error that is not delivered through its stream."""
        finish = self._finish(error.code, now)
        return Finish(replace(finish.ending, error=error))

    def gone(self, now: float) -> Finish:
        """Its client has gone, so there is nobody to deliver an end to."""
        return self._finish("client_gone", now)

    def overdue(self, now: float) -> RequestError | None:
        """The error it has to end with at `now`, if a deadline has passed."""
        if now < self.deadline:
            return None
        limits = self._limits
        if self.expires_at <= self._stage_deadline:
            return RequestTimeout(f"not finished within {limits.request_timeout:g} s")
        match self.state:
            case "queued":
                return QueueTimeout(f"no slot was free for {limits.buffered_request_timeout:g} s")
            case "assigned":
                return FirstTokenTimeout(f"no token within {limits.first_token_timeout:g} s")
            case "streaming":
                return TokenTimeout(f"no further token within {limits.token_timeout:g} s")

    # ---- inside

    @property
    def _stage_deadline(self) -> float:
        limits = self._limits
        match self.state:
            case "queued":
                return self._queue_deadline
            case "assigned":
                return self._assigned_at + limits.first_token_timeout
            case "streaming":
                return self._last_token_at + limits.token_timeout

    def _last_notice(self) -> list[Decision]:
        """Says how many notices the client did not get, if there were any."""
        if not self._num_notices_left_out:
            return []
        message = (
            f"only the first {MAX_NOTICES} notices are passed on; "
            f"left out: {self._num_notices_left_out}"
        )
        return [Deliver(self.id, Notice("notices_left_out", message))]

    def _finish(self, code: str, now: float) -> Finish:
        if self.is_ended:
            raise ValueError(f"request {self.id} has ended already")
        self.is_ended = True
        return Finish(
            Ending(
                code=code,
                request_id=self.id,
                agent=self.agent,
                caller=self.caller,
                model=self.model,
                usage=self._usage_so_far(),
                timings=self._timings(now, _NO_RATES),
            )
        )

    def _usage_so_far(self) -> Usage:
        """The prompt counts once an agent has computed it."""
        begun = self._begun or Begun(0, 0)
        return Usage(
            prompt_tokens=begun.prompt_tokens,
            cached_tokens=begun.cached_tokens,
            completion_tokens=self.num_tokens,
        )

    def _timings(self, now: float, rates: Rates) -> Timings:
        first = self._first_token_at
        return Timings(
            queue_ms=self.waited(now) * 1000,
            first_token_ms=None if first is None else (first - self.accepted_at) * 1000,
            total_ms=self.total_ms(now),
            prefill_tokens_per_second=rates.prefill_tokens_per_second,
            decode_tokens_per_second=rates.decode_tokens_per_second,
        )

    def _require_agent(self) -> None:
        if self.link is None or self.is_ended:
            raise self._no_agent()

    def _no_agent(self) -> ValueError:
        return ValueError(f"request {self.id} has no agent to receive from")

    def _require(self, state: RequestState) -> None:
        if self.state != state or self.is_ended:
            raise ValueError(f"request {self.id} is {self.state}, not {state}, or has ended")

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if self.state == "streaming" and self.link is None:
            raise RuntimeError(f"{self.id} streams from nobody")
        if (self._queued_at is None) != (self.link is not None):
            raise RuntimeError(f"{self.id} counts its waiting wrongly")
        if self._waited < 0 or self.num_tokens < 0:
            raise RuntimeError(f"{self.id} counts backwards")
