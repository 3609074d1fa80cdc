"""The balancer's core: one method for each event of clients, agents and time.

The caller carries the decisions out in their order, and calls `tick` at `next_deadline`.

How races end:
- A deadline that has come counts before the event that arrives with it: a slot that frees at the
  moment a waiting request times out comes too late for it.
- What an agent sends about a request that it does not have (any more) is ignored and counted, and
  so is what comes over a link that was given up. Frames are in order, so a slot is free as soon
  as the `Cancel` is sent: the `Start` that follows finds it free.
- A client that disconnects ends its request at once, at any stage. One that cancels gets the
  agent's answer; if the agent does not start the request, or is lost, the request ends with
  `cancelled` and no other agent starts it.
- When an agent is lost, its requests go to the head of the queue. Those whose answer has begun go
  on where it stopped, on agents of the same fingerprint. A request that agents were lost with too
  often (`requests/moves.py`) ends, since it may be the cause.
- A request that moves away from a living agent waits until that has answered the `Cancel`. What the
  agent sent of the answer meanwhile is not delivered: the next one generates it again.
- An agent that dials again while its old link still seems alive takes the old one's place. Another
  that says the same id is refused (`identities.py`).
- A request whose agent has given no sign of an answer for long goes to another, once: that is told
  to stop, and may not have the request again before it said that it has.
- An agent that answers `Busy` is full until something of its ends, it reports a change, or
  `BUSY_PAUSE` has passed: other balancers may hold its slots, and no message says when they free
  them. One that declines a query gets none of that kind for a while.
- An agent whose message cannot be true, or cannot be handled, is lost at once and stays away for a
  pause (`bad_messages.py`). Nothing of that message counts, and no other agent notices.

Invariants: every accepted request ends exactly once; a link's requests are those that dispatch has
on it; with draining, nobody waits whom no agent can serve.
"""

from collections.abc import Iterable
from typing import assert_never

from ....shared.errors import InternalError, RequestError
from ....shared.inference import Event, Failed, GenerateRequest, RequestId, Timings, Usage
from ....shared.messages import (
    Evicted,
    FromAgent,
    Heartbeat,
    Hello,
    LogRead,
    Output,
    Reject,
    Reply,
    Status,
)
from ....shared.reports.statistics import Statistics
from ...access.identity import Identity
from ..bad_messages import BadMessage
from ..caller import ANONYMOUS, Caller
from ..decisions import Decision, Deliver, Disconnect, Finish, LinkId, LogBad, Send, Settle, ShowLog
from ..limits import Limits
from ..queries.query import QueryLifecycle, QueryRequest
from ..recorder import Ending
from ..registry import Agent
from ..requests.delivered import Delivered
from ..requests.request_lifecycle import RequestLifecycle
from ..requests.routing import Engine
from ..requests.transitions import refuse
from .admission import UNCOUNTED
from .agent_output import AgentOutput
from .operations import Operations


class Fleet(Operations):
    """What clients and agents do: one method per event.

    The module's docstring has the invariants. What operators do is in `operations`, and what time
    does in `fleet_clock`.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        version: str = "",
        ticket_secret: bytes = b"",
        identity_secret: bytes = b"",
    ) -> None:
        """Agents lend prefixes to each other by tickets made of the secret; without one, never.

        Of the other secret, the secrets are made by which agents prove who they are.
        """
        super().__init__(
            limits, version=version, ticket_secret=ticket_secret, identity_secret=identity_secret
        )
        self._output = AgentOutput(self._state)

    # ---- clients

    def request_arrived(
        self,
        id: RequestId,
        request: GenerateRequest,
        now: float,
        *,
        caller: Caller = ANONYMOUS,
        tell_waiting: float | None = None,
        together: int = 1,
    ) -> list[Decision]:
        """A client sent a request. Accepted, unless there is a `Refuse` among the decisions.

        The client is told about waits that are longer than `tell_waiting` seconds. It is refused if
        its caller's limits have no room for `together` requests like it, of which it is the first.
        """
        decisions = self._due(now)
        self._state.changes.advance()
        newcomer = self._admission.request(request, caller, now, together=together)
        if newcomer.error is not None:
            lifecycle = RequestLifecycle(id, newcomer.request, self.limits, now, caller=caller)
            return [*decisions, *refuse(lifecycle, newcomer.error, now)]
        decisions += self._state.requests.admit(
            id, newcomer.request, caller, now, tell_waiting=tell_waiting
        )
        if id in self:
            self._admission.admitted(id, caller, newcomer.demand, now)
        self._steering.waits(newcomer.request.model, now)
        return decisions

    def request_resumed(
        self,
        id: RequestId,
        request: GenerateRequest,
        now: float,
        *,
        caller: Caller,
        told: Iterable[Event],
        engine: Engine | None,
        age: float = 0.0,
    ) -> list[Decision]:
        """Go on with what another run of the balancer accepted `age` seconds ago.

        Its client was `told` this of an answer that came from `engine`. It is never refused, since
        it was let in before; it counts among its caller's.
        """
        decisions = self._due(now)
        self._state.changes.advance()
        request = self._admission.named(request, caller)
        lifecycle = RequestLifecycle(id, request, self.limits, now, caller=caller)
        lifecycle.resume(Delivered.after(told), engine, age)
        decisions += self._state.requests.resume(lifecycle, now)
        if id in self:
            self._admission.admitted(id, caller, UNCOUNTED, now)
        self._steering.waits(request.model, now)
        return decisions

    def query_arrived(
        self, id: RequestId, query_request: QueryRequest, now: float, *, caller: Caller = ANONYMOUS
    ) -> list[Decision]:
        """A client sent a query, which takes no slot. Accepted as in `request_arrived`."""
        decisions = self._due(now)
        self._state.changes.advance()
        dispatcher = self._state.dispatcher
        newcomer = self._admission.query(query_request, caller, now)
        if newcomer.error is not None:
            lifecycle = QueryLifecycle(id, newcomer.request, self.limits, now, caller=caller)
            return [*decisions, *dispatcher.refuse(lifecycle, newcomer.error, now)]
        decisions += dispatcher.admit(id, newcomer.request, caller, now)
        if id in self:
            self._admission.admitted(id, caller, newcomer.demand, now)
        self._steering.waits(newcomer.request.model, now)
        return decisions

    def settle(self, ending: Ending, now: float) -> None:
        """A request has ended as `Finish` said: its caller gets back what it did not use."""
        self._admission.ended(ending.request_id, ending.usage, now)

    def close(self, id: RequestId, now: float) -> list[Decision]:
        """A client disconnected; nothing more is delivered to it."""
        decisions = self._due(now)
        if id not in self:
            return decisions
        self._state.changes.advance()
        if (lifecycle := self._state.requests.get(id)) is not None:
            return [*decisions, *self._state.requests.close(lifecycle, now)]
        return [*decisions, *self._state.dispatcher.close(id, now)]

    def cancel(self, ids: Iterable[RequestId], now: float) -> list[Decision]:
        """Cancel all of these at once: none of them starts any more."""
        decisions = self._due(now)
        requests, dispatcher = self._state.requests, self._state.dispatcher
        live = [id for id in dict.fromkeys(ids) if id in self]
        lifecycles = [e for id in live if (e := requests.get(id)) is not None]
        queries = [id for id in live if id in dispatcher]
        if live:
            self._state.changes.advance()
        cancelled = requests.cancel(lifecycles, now)
        return [*decisions, *cancelled, *dispatcher.cancel(queries, now)]

    def revoked(self, owner: str, error: RequestError, now: float) -> list[Decision]:
        """A caller may no longer be here: what it made ends with `error`. Costs all requests."""
        decisions = self._due(now)
        ended = self._state.requests.end_of(owner, error, now)
        ended += self._state.dispatcher.end_of(owner, error, now)
        if ended:
            self._state.changes.advance()
        return [*decisions, *ended]

    # ---- agents

    def agent_joined(
        self, link: LinkId, hello: Hello, now: float, holder: Identity | None = None
    ) -> list[Decision]:
        """An agent dialled and said hello, with the key of `holder` where keys are needed.

        It is welcomed, or rejected and disconnected.
        """
        decisions = self._due(now)
        try:
            decisions += self._membership.joined(link, hello, now, holder)
        except Exception as error:  # whatever it is, it is no business of others
            decisions += self._refused(link, hello, error, now)
        return [*decisions, *self._end_stranded(now)]

    def _refused(self, link: LinkId, hello: Hello, error: Exception, now: float) -> list[Decision]:
        """A fault of ours was met while an agent joined."""
        reason = "its hello could not be handled"
        if (agent := self._state.registry.get(link)) is not None:
            return self._membership.broke(agent, reason, now, error=error, is_ours=True)
        reject = Send(link, Reject(reason=reason, retry=True))
        return [LogBad(hello.name, reason, error, True), reject, Disconnect(link, reason)]

    def agent_said(self, link: LinkId, message: FromAgent, now: float) -> list[Decision]:
        """A frame came over a link."""
        decisions = self._due(now)
        agent = self._state.registry.get(link)
        if agent is None:
            return decisions
        agent.heartbeat.heard(now)
        self._state.identities.heard(agent.hello.agent_id)
        if isinstance(message, Heartbeat):
            return decisions
        if isinstance(message, Status) and self._membership.puts_off(agent, message, now):
            return decisions
        try:
            for decision in self._said(agent, message, now):
                decisions.append(decision)  # one by one: those before a fault count
        except BadMessage as error:
            reason = str(error)
            decisions += self._membership.broke(agent, reason, now, error=None, is_ours=False)
        except Exception as error:  # whatever it is, it is no business of other agents
            reason = f"a `{message.type}` could not be handled"
            decisions += self._membership.broke(agent, reason, now, error=error, is_ours=True)
        self._state.changes.advance()
        return [*decisions, *self._end_stranded(now)]

    def agent_broke(self, link: LinkId, reason: str, now: float) -> list[Decision]:
        """What came over a link is no message, or one with a value that cannot be."""
        decisions = self._due(now)
        if (agent := self._state.registry.get(link)) is not None:
            decisions += self._membership.broke(agent, reason, now, error=None, is_ours=False)
        return [*decisions, *self._end_stranded(now)]

    def forgotten(
        self, requests: Iterable[RequestId], queries: Iterable[RequestId]
    ) -> list[Decision]:
        """After a fault of ours: the end of those that are not here, and whose clients wait."""
        error = InternalError("a fault of the balancer ended this request; its log has the details")
        decisions: list[Decision] = []
        for id in requests:
            if id not in self:
                decisions += [Deliver(id, Failed(error)), _finish(id, error)]
        for id in queries:
            if id not in self:
                decisions += [Settle(id, error), _finish(id, error)]
        return decisions

    def _said(
        self,
        agent: Agent,
        message: Hello | Status | Statistics | Output | Reply | LogRead | Evicted,
        now: float,
    ) -> Iterable[Decision]:
        match message:
            case LogRead():
                self._state.log_readers.ended(message.id)
                return [ShowLog(message)]
            case Output():
                return self._output.items(agent, message.items, now)
            case Status():
                return self._membership.changed(agent, message, now)
            case Reply():
                return self._output.reply(agent, message, now)
            case Statistics():
                self._membership.measured(agent, message, now)
                return []
            case Evicted():
                self._state.requests.evicted(agent, message)
                return []
            case Hello():
                return self._membership.dismiss(agent, "a second hello on one link", now)
            case _:
                assert_never(message)

    def agent_heard(self, link: LinkId, now: float) -> list[Decision]:
        """A part of a message came over a link: a sign of life."""
        decisions = self._due(now)
        if (agent := self._state.registry.get(link)) is not None:
            agent.heartbeat.heard(now)
        return decisions

    def agent_left(self, link: LinkId, now: float, *, hung_up: bool = False) -> list[Decision]:
        """A link's socket is closed; `hung_up` if the agent did that in good order, and lives."""
        decisions = self._due(now)
        agent = self._state.registry.get(link)
        if agent is None:
            return decisions
        left = self._membership.lost(agent, now, hung_up=hung_up)
        return [*decisions, *left, *self._end_stranded(now)]


def _finish(id: RequestId, error: RequestError) -> Finish:
    """The end of one of which nothing is known any more."""
    timings = Timings(queue_ms=0.0, first_token_ms=None, total_ms=0.0)
    return Finish(
        Ending(
            code=error.code,
            request_id=id,
            agent=None,
            usage=Usage(),
            timings=timings,
            error=error,
        )
    )
