"""The balancer's core: one method for each event of clients, agents and time.

The caller carries the decisions out in their order, and calls `tick` at `next_deadline`.

How races end:

- A deadline that has come counts before the event that arrives with it. If a slot becomes free at
  the moment when a waiting request times out, the request has timed out.
- If an agent sends a message about a request that it does not have (any more), the message is
  ignored and counted. So is a message over a link that was given up. Frames are in order, so a
  slot is free as soon as the `Cancel` is sent: the `Start` that follows finds a free slot.
- A client that disconnects ends its request at once, at any stage. A client that cancels gets the
  agent's answer. If the agent does not start the request, or is lost, the request ends with
  `cancelled` and no other agent starts it.
- When an agent is lost, its requests go to the head of the queue. Requests whose answer has begun
  continue it on agents of the same fingerprint. If agents were lost too often while running a
  request (`Moves`), it ends, since it may be the cause.
- If a request moves away from a living agent, it waits until the agent has answered the `Cancel`.
  Parts of the answer that the agent sends in that time are not delivered: the next agent generates
  them again.
- If an agent dials again while its old link still seems alive, the new link replaces the old one.
  Another agent with the same id is refused (`identities.py`).
- If a request's agent has shown no sign of an answer for long, the request goes to another agent,
  once. The first agent is asked to stop, and may have the request again only after it has
  confirmed the stop.
- An agent that answers `Busy` counts as full until one of its requests ends, it reports a change,
  or `BUSY_PAUSE` has passed: other balancers may hold its slots, and no message says when these
  become free. An agent that declines a query gets no queries of that kind for a while.
- If an agent's message cannot be true, or cannot be handled, the agent is lost at once and stays
  away for a pause (`bad_messages.py`). The whole message is ignored, and no other agent notices.

Invariants: every accepted request ends exactly once; a link has exactly the requests that dispatch
has on it; while draining, no request waits that no agent can serve.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import assert_never

from ....shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    InternalError,
    NotFound,
    RequestError,
    ShuttingDown,
    WireError,
    from_agent,
)
from ....shared.inference import (
    AgentId,
    Event,
    Failed,
    GenerateRequest,
    RequestId,
    Timings,
    Token,
    Usage,
)
from ....shared.messages import (
    Busy,
    Called,
    CallStarted,
    Ended,
    Evicted,
    FitRead,
    FromAgent,
    Heartbeat,
    Hello,
    Item,
    LogRead,
    Noticed,
    Output,
    Piece,
    PromptProgress,
    PromptRead,
    ReadFit,
    ReadLog,
    Refused,
    Reject,
    Reply,
    Status,
    Withdraw,
)
from ....shared.reports.statistics import Statistics
from ...access.identity import Identity
from ...control.demand import Demand
from ...control.desired_state import DesiredState
from ..bad_messages import BadMessage
from ..caller import ANONYMOUS, Caller
from ..deadlines import earliest
from ..decisions import (
    Decision,
    Deliver,
    Disconnect,
    Finish,
    LinkId,
    LogBad,
    Send,
    Settle,
    ShowFit,
    ShowLog,
)
from ..lifecycle import NotServed
from ..limits import Limits
from ..queries.query import QueryLifecycle, QueryRequest
from ..queries.query_dispatcher import refuse as refuse_query
from ..recorder import Ending
from ..registry import Agent
from ..requests.delivered import Delivered
from ..requests.eligibility import Engine
from ..requests.request import Request
from ..requests.requests import Gain, refuse
from ..view import Cordon, SharedCordon
from .admission import Admission
from .membership import Membership
from .state import empty_state
from .steering import Steering

_AGENTS_OWN = (ShuttingDown.code, Cancelled.code, AgentLost.code)
"""Codes of errors that do not depend on the request."""

NoPiece = CallStarted | Called | Noticed | PromptProgress | PromptRead | Ended | Refused | Busy


class Fleet:
    """The core: one method per event. Each returns decisions, to be carried out in order.

    The module's docstring has the invariants. `fleet_views` has views for readers.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        version: str = "",
        ticket_secret: bytes = b"",
        identity_secret: bytes = b"",
    ) -> None:
        """Make an empty fleet. Agents lend prefixes with tickets made with `ticket_secret`.

        Without `ticket_secret` they do not lend. `identity_secret` makes the secrets with which
        agents prove their identity.
        """
        self.state = empty_state(limits, version, ticket_secret, identity_secret)
        self.steering = Steering(self.state)
        self.admission = Admission(self.state)
        self._membership = Membership(self.state, self.steering)
        self._next_deadline: float | None = None
        self._is_deadline_known = False
        """The next deadline, kept until the next event: each event reads it before and after."""

    def __contains__(self, id: object) -> bool:
        """Return whether the request was accepted and has not ended."""
        return id in self.state.lives

    @property
    def limits(self) -> Limits:
        """Bounds of waiting requests, and time limits."""
        return self.state.limits

    @property
    def revision(self) -> int:
        """A number that grows with every visible change, except the mere passing of time."""
        return self.state.changes.revision

    @property
    def is_idle(self) -> bool:
        """Whether every accepted request has ended."""
        return self.state.is_idle

    def next_deadline(self) -> float | None:
        """Return when to call `tick`. Nothing may be due then, because deadlines move later."""
        if not self._is_deadline_known:
            self._next_deadline = None
            if not self.state.is_closed:
                steering = self.steering.next_deadline()
                self._next_deadline = earliest(self.state.next_deadline(), steering)
            self._is_deadline_known = True
        return self._next_deadline

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
        """Take a client's request. It is accepted unless the decisions have a `Refuse`.

        The client is told of waits longer than `tell_waiting` seconds. The call has `together`
        such requests, of which this is the first. The request is refused if its caller's limits do
        not allow all of them.
        """
        decisions = self._due(now)
        self.state.changes.advance()
        newcomer = self.admission.request(request, caller, now, together=together)
        if newcomer.error is not None:
            refused = Request(id, newcomer.request, self.limits, now, caller=caller)
            return [*decisions, *refuse(refused, newcomer.error, now)]
        decisions += self.state.requests.admit(
            id, newcomer.request, caller, now, tell_waiting=tell_waiting
        )
        if id in self:
            self.admission.admitted(id, newcomer, now)
        self.steering.demand_changed(newcomer.request.model, now)
        return decisions

    def request_resumed(
        self,
        id: RequestId,
        request: GenerateRequest,
        now: float,
        *,
        caller: Caller,
        delivered: Iterable[Event],
        engine: Engine | None,
        age: float = 0.0,
    ) -> list[Decision]:
        """Resume a request that another run of the balancer accepted `age` seconds ago.

        Its client got `delivered`, the beginning of an answer of `engine`. The request is never
        refused, because it was accepted earlier; it counts in its caller's limits.
        """
        decisions = self._due(now)
        self.state.changes.advance()
        named = self.admission.named(request, caller)
        resumed = Request(id, named, self.limits, now, caller=caller)
        resumed.resume(Delivered.after(delivered), engine, age)
        decisions += self.state.requests.resume(resumed, now)
        if id in self:
            self.admission.resumed(id, named, now)
        self.steering.demand_changed(named.model, now)
        return decisions

    def query_arrived(
        self, id: RequestId, query_request: QueryRequest, now: float, *, caller: Caller = ANONYMOUS
    ) -> list[Decision]:
        """Take a client's query, which uses no slot. It is accepted as in `request_arrived`."""
        decisions = self._due(now)
        self.state.changes.advance()
        newcomer = self.admission.query(query_request, caller, now)
        query = QueryLifecycle(id, newcomer.request, self.limits, now, caller=caller)
        if newcomer.error is not None:
            return [*decisions, *refuse_query(query, newcomer.error, now)]
        decisions += self.state.dispatcher.admit(query, now)
        if id in self:
            self.admission.admitted(id, newcomer, now)
        self.steering.demand_changed(newcomer.request.model, now)
        return decisions

    def settle(self, ending: Ending, now: float) -> None:
        """Give the unused part of its limits back to the caller of a request that has ended."""
        self._is_deadline_known = False
        self.admission.ended(ending.request_id, ending.usage, now)
        if ending.agent is None:
            self.steering.demand_changed(ending.model, now)

    def close(self, id: RequestId, now: float) -> list[Decision]:
        """End the request of a client that disconnected; nothing more is delivered."""
        decisions = self._due(now)
        match self.state.lives.get(id):
            case Request() as request:
                return [*decisions, *self.state.requests.close(request, now)]
            case QueryLifecycle() as query:
                return [*decisions, *self.state.dispatcher.close(query, now)]
            case _:
                return decisions

    def cancel(self, ids: Iterable[RequestId], now: float) -> list[Decision]:
        """Cancel requests and queries together, so that none starts in a freed slot."""
        decisions = self._due(now)
        found = [self.state.lives.get(id) for id in dict.fromkeys(ids)]
        requests = [each for each in found if isinstance(each, Request)]
        queries = [each for each in found if isinstance(each, QueryLifecycle)]
        if requests or queries:
            self.state.changes.advance()
        cancelled = self.state.requests.cancel(requests, now)
        error = Cancelled("cancelled before it was answered")
        ended = self.state.dispatcher.end(dict.fromkeys(queries, error), now)
        return [*decisions, *cancelled, *ended]

    def revoked(self, owner: str, error: RequestError, now: float) -> list[Decision]:
        """End with `error` all requests of a caller whose key has ended.

        Costs the number of all requests.
        """
        decisions = self._due(now)
        made = (each for each in self.state.lives if each.caller.owner == owner)
        return [*decisions, *self.state.end(dict.fromkeys(made, error), now)]

    # ---- agents

    def agent_joined(
        self, link: LinkId, hello: Hello, now: float, holder: Identity | None = None
    ) -> list[Decision]:
        """Take the hello of an agent, with the `holder` of its key if keys are needed.

        The agent is welcomed, or rejected and disconnected.
        """
        decisions = self._due(now)
        try:
            decisions += self._membership.joined(link, hello, now, holder)
        except Exception as error:  # whatever it is, it is no business of others
            decisions += self._refused(link, hello, error, now)
        return [*decisions, *self._end_stranded(now)]

    def _refused(self, link: LinkId, hello: Hello, error: Exception, now: float) -> list[Decision]:
        """Disconnect an agent that could not join because of an internal error."""
        reason = "its hello could not be handled"
        if (agent := self.state.registry.get(link)) is not None:
            return self._membership.broke(agent, reason, now, error=error, is_ours=True)
        reject = Send(link, Reject(reason=reason, retry=True))
        return [LogBad(hello.name, reason, error, True), reject, Disconnect(link, reason)]

    def agent_said(self, link: LinkId, message: FromAgent, now: float) -> list[Decision]:
        """Take a message of an agent."""
        decisions = self._due(now)
        agent = self.state.registry.get(link)
        if agent is None:
            return decisions
        agent.heartbeat.heard(now)
        self.state.identities.heard(agent.hello.agent_id)
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
        self.state.changes.advance()
        return [*decisions, *self._end_stranded(now)]

    def agent_broke(self, link: LinkId, reason: str, now: float) -> list[Decision]:
        """Disconnect an agent that sent an invalid message or an impossible value."""
        decisions = self._due(now)
        if (agent := self.state.registry.get(link)) is not None:
            decisions += self._membership.broke(agent, reason, now, error=None, is_ours=False)
        return [*decisions, *self._end_stranded(now)]

    def forgotten(
        self, requests: Iterable[RequestId], queries: Iterable[RequestId]
    ) -> list[Decision]:
        """End requests and queries that an internal error made unknown to the core.

        `requests` and `queries` have clients that still wait.
        """
        error = InternalError(
            "an internal error of the balancer ended this request; the balancer's log has the "
            "details"
        )
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
        message: Hello | Status | Statistics | Output | Reply | LogRead | FitRead | Evicted,
        now: float,
    ) -> Iterable[Decision]:
        match message:
            case LogRead():
                self.state.open_reads.pop(message.id, None)
                return [ShowLog(message)]
            case FitRead():
                self.state.open_reads.pop(message.id, None)
                return [ShowFit(message)]
            case Output():
                return self._items(agent, message.items, now)
            case Status():
                return self._membership.changed(agent, message, now)
            case Reply():
                return self._replied(agent, message, now)
            case Statistics():
                self._membership.measured(agent, message, now)
                return []
            case Evicted():
                self.state.requests.evicted(agent, message)
                return []
            case Hello():
                return self._membership.dismiss(agent, "a second hello on one link", now)
            case _:
                assert_never(message)

    def agent_heard(self, link: LinkId, now: float) -> list[Decision]:
        """Take a part of a message as a sign of life."""
        decisions = self._due(now)
        if (agent := self.state.registry.get(link)) is not None:
            agent.heartbeat.heard(now)
        return decisions

    def agent_left(self, link: LinkId, now: float, *, hung_up: bool = False) -> list[Decision]:
        """Remove an agent whose socket is closed.

        `hung_up`: the agent closed the socket in good order, and lives.
        """
        decisions = self._due(now)
        agent = self.state.registry.get(link)
        if agent is None:
            return decisions
        left = self._membership.lost(agent, now, hung_up=hung_up, has_crashed=not hung_up)
        return [*decisions, *left, *self._end_stranded(now)]

    # ---- what agents generate: each item of a step to its request, each reply to its query

    def _items(self, agent: Agent, items: Sequence[Item], now: float) -> Iterator[Decision]:
        """Take the items of a step in order. Raises `BadMessage` before the first decision.

        Consecutive pieces of the same model and adapter count as one change.
        """
        get, link = self.state.lives.get, agent.link
        for item in items:
            request = get(item.id)
            if isinstance(request, Request) and request.link == link:
                request.claim.check(item)
        gains: list[Gain] = []
        for item in items:
            request = get(item.id)
            if not isinstance(request, Request) or request.link != link:
                self.state.items_ignored += 1
                if isinstance(request, Request) and isinstance(item, Ended | Refused | Busy):
                    request.deserted.discard(link)  # it has the request no more
            elif request.drops_rest:
                yield from self._left(request, item, now)
            elif isinstance(item, Piece):
                if gains and gains[-1][0].served_as != request.served_as:
                    yield from self._gained(agent, gains, now)
                    gains = []
                token = Token(item.text, item.kind, item.tokens, item.log_probs or ())
                gains.append((request, token))
            else:
                if gains:
                    yield from self._gained(agent, gains, now)
                    gains = []
                yield from self._item(agent, request, item, now)
        if gains:
            yield from self._gained(agent, gains, now)

    def _replied(self, agent: Agent, reply: Reply, now: float) -> list[Decision]:
        """Take the answer to a query."""
        decisions = self.state.dispatcher.replied(agent, reply, now)
        if decisions is None:
            self.state.items_ignored += 1
            return []
        return decisions

    def _gained(self, agent: Agent, gains: list[Gain], now: float) -> list[Decision]:
        decision, firsts, num_begun = self.state.requests.gained(gains, now)
        self.state.registry.generated(agent, decision.num_tokens)
        self.state.tokens_total += decision.num_tokens
        agent.spoke_at = now
        if not num_begun:
            return [decision, *firsts]
        return [decision, *firsts, *self.state.requests.answered(agent, now, num_begun)]

    def _item(
        self, agent: Agent, request: Request, item: NoPiece, now: float
    ) -> Iterable[Decision]:
        requests = self.state.requests
        agent.spoke_at = now
        was_streaming = request.is_streaming
        match item:
            case PromptProgress():
                requests.reads(request, item, now)
                return []
            case CallStarted() | Called() | Noticed() | PromptRead():
                received = requests.received(request, item, now)
                if was_streaming or not request.is_streaming:
                    return received
                return [*received, *requests.answered(agent, now)]
            case _ if request.is_leaving:
                return self._left(request, item, now)
            case Ended():
                done = requests.done(request, item, now)
                if was_streaming or item.finish_reason == "cancelled":
                    return done
                return [*done, *requests.answered(agent, now)]
            case Refused() if item.error.code == AgentLost.code:
                self.state.registry.rests(agent, now)
                return requests.lost_server(request, from_agent(item.error), now)
            case Refused() if item.error.code != ShuttingDown.code:
                error = _error(request, item.error)
                is_broken = isinstance(error, EngineFailed)
                disappointed = requests.disappointed(agent, now) if is_broken else []
                return [*disappointed, *requests.fail(request, error, now)]
            case Refused():
                self.state.registry.rests(agent, now)
                return requests.give_back(request, from_agent(item.error), now)
            case Busy():
                self.state.registry.rests(agent, now)
                return requests.hand_back(request, now)
            case _:
                assert_never(item)

    def _left(self, request: Request, item: Item, now: float) -> Iterable[Decision]:
        """Take the end of a request whose agent was asked to stop.

        The end counts only if everything before it was delivered.

        If the request itself was wrong, its error is kept.
        """
        requests = self.state.requests
        match item:
            case Ended(finish_reason="cancelled") if request.is_cancelling:
                return requests.done(request, item, now)
            case Ended(finish_reason=reason) if reason != "cancelled" and not request.drops_rest:
                return requests.done(request, item, now)
            case Refused(error=error) if error.code not in _AGENTS_OWN:
                return requests.fail(request, _error(request, error), now)
            case Ended() | Refused() | Busy():
                return requests.let_go(request, now)
            case _:
                return ()

    # ---- operators

    def desire(self, desired: DesiredState, now: float) -> list[Decision]:
        """Serve this desired state from now on."""
        decisions = self._due(now)
        self.steering.desire(desired, now)
        return [*decisions, *self._renamed(now)]

    def restored(self, desired: DesiredState, now: float) -> list[Decision]:
        """Serve this desired state, which was also desired before the balancer's start."""
        decisions = self._due(now)
        self.steering.restored(desired, now)
        return [*decisions, *self._renamed(now)]

    def _renamed(self, now: float) -> list[Decision]:
        """Move requests that named a former alias."""
        aliases = self.state.models.aliases
        requests = self.state.requests.renamed(aliases, now)
        return [*requests, *self.state.dispatcher.renamed(aliases, now)]

    def restore_models(self, names: Iterable[str], now: float) -> None:
        """Remember models that were served before the balancer's start.

        Call it before agents join.
        """
        self._is_deadline_known = False
        self.state.models.restored(names, now)

    def restore_cordons(self, cordons: Iterable[Cordon]) -> None:
        """Restore the cordons from before the balancer's start, oldest first.

        Call it before agents join.
        """
        self._is_deadline_known = False
        self.steering.cordons.restored(cordons)

    def cordon(self, id: AgentId, within: float | None, now: float) -> list[Decision]:
        """Give an agent no new work; its running requests move after `within` seconds, if given.

        Raises `NotFound`, as do `resume` and `reload`.
        """
        agent = self._connected(id)
        deadline = None if within is None else now + within
        return [*self._due(now), *self.steering.cordon(agent, deadline, now)]

    def resume(self, id: AgentId, now: float) -> list[Decision]:
        """Give an agent work again."""
        agent = self._connected(id)
        return [*self._due(now), *self.steering.resume(agent, now)]

    def reload(self, id: AgentId, drain_timeout: float, now: float) -> list[Decision]:
        """Let an agent load its model again; requests may go on for `drain_timeout` seconds."""
        agent = self._connected(id)
        return [*self._due(now), *self.steering.reload(agent, drain_timeout, now)]

    def read_log(
        self, id: RequestId, agent_id: AgentId, after: int, now: float, *, wait: bool = False
    ) -> list[Decision]:
        """Ask an agent for the lines of its log with numbers above `after`: a `ShowLog` follows.

        With `wait` it follows as soon as there are such lines. If the agent leaves, a `ReadsLost`
        follows. Raises `NotFound`.
        """
        return self._read(agent_id, ReadLog(id=id, after=after, wait=wait), now)

    def read_fit(self, agent_id: AgentId, question: ReadFit, now: float) -> list[Decision]:
        """Ask a host which options it would choose for a model.

        A `ShowFit` or a `ReadsLost` follows. Call this only for hosts whose facts have
        `answers_fit`. Raises `NotFound`.
        """
        return self._read(agent_id, question, now)

    def _read(self, agent_id: AgentId, read: ReadLog | ReadFit, now: float) -> list[Decision]:
        """Send a read over one of the host's links, preferably one that serves a model."""
        decisions = self._due(now)
        places = self.state.registry.on_host(self._connected(agent_id).host)
        agent = next((each for each in places if each.model is not None), places[0])
        self.state.open_reads[read.id] = agent.link
        return [*decisions, self.state.registry.message_to(agent.link, read, now)]

    def stop_reading(self, id: RequestId, now: float) -> list[Decision]:
        """Forget a read, because its reader no longer waits."""
        if (link := self.state.open_reads.pop(id, None)) is None:
            return []
        withdrawn = self.state.registry.message_to(link, Withdraw(id=id), now)
        return [*self._due(now), withdrawn]

    # ---- other balancers over the same store

    def lead(self, epoch: int, now: float) -> list[Decision]:
        """Give agents orders from now on; see `OrderNumbers` in `control/controller.py`."""
        self.steering.lead(epoch, now)
        return self._due(now)

    def follow(self) -> None:
        """Give no more orders, because another balancer leads, or none."""
        self._is_deadline_known = False
        self.steering.follow()

    def others(self, num_live: int, demands: Mapping[str, Demand], now: float) -> list[Decision]:
        """Take the number of live balancers, including this one, and the others' `demands`."""
        self.admission.shared_by(num_live)
        self.steering.others_wait(demands, now)
        return self._due(now)

    def retry_agent(self, id: AgentId, now: float) -> list[Decision]:
        """Let an agent try again to load models, as an operator at another balancer wants."""
        if (agent := self.state.registry.find(id)) is not None:
            self.steering.retry(agent, now)
        return self._due(now)

    def apply_cordons(self, shared: Collection[SharedCordon], now: float) -> list[Decision]:
        """Replace all cordons by those that operators of all balancers want."""
        return [*self._due(now), *self.steering.apply_cordons(shared, now)]

    def _connected(self, id: AgentId) -> Agent:
        agent = self.state.registry.find(id)
        if agent is None:
            raise NotFound(f"no agent `{id[:100]}` is connected")
        return agent

    # ---- time, and the end of it

    def tick(self, now: float) -> list[Decision]:
        """Do everything that is due at `now`.

        Silent agents are given up only here. When the timer fires, everything that they sent has
        been read, however long that took.
        """
        return self._due(now, is_timer=True)

    def drain(self, now: float, deadline: float) -> list[Decision]:
        """Accept no new requests, and end the remaining ones at `deadline`."""
        self.state.changes.advance()
        self.state.drained_at = deadline
        self._is_deadline_known = False
        return [*self._due(now), *self._end_stranded(now)]

    def goodbye(self, now: float) -> list[Decision]:
        """End all requests, disconnect all agents, and accept no others."""
        decisions = self.drain(now, now)
        self.state.is_closed = True
        return [*decisions, *self._membership.say_goodbye(now)]

    def _due(self, now: float, *, is_timer: bool = False) -> list[Decision]:
        """Do everything that is due, in an order in which no request starts in vain.

        Every event begins with this.
        """
        state = self.state
        state.requests.dispatch.now = now
        decisions = state.dispatcher.try_suspects(now)
        deadline = self.next_deadline()
        self._is_deadline_known = False
        if deadline is None or now < deadline:
            return decisions
        if state.models.due(now):
            state.changes.advance()
        decisions += self._end_drained(now)
        agents = state.registry.due(now)
        silent = [agent for agent in agents if is_timer and agent.heartbeat.is_lost(now)]
        heard = [agent for agent in agents if not (is_timer and agent.heartbeat.is_lost(now))]
        self._membership.suspend(silent, now)

        @cache  # a look at all agents, and many requests may wait for one model
        def why_not_served(model: str | None) -> NotServed:
            return self.steering.not_served(model, now)

        due = state.lives.due(now)
        requests = [each for each in due if isinstance(each, Request)]
        queries = [each for each in due if isinstance(each, QueryLifecycle)]
        decisions += state.requests.due(requests, now, why_not_served)
        decisions += state.dispatcher.due(queries, now, why_not_served)
        decisions += self._membership.dismiss_silent(silent, now)
        if decisions:
            state.changes.advance()
        for agent in heard:
            decisions += self._membership.attend(agent, now)
        decisions += self.steering.due(now)
        decisions += self._end_stranded(now)
        return [*decisions, *state.requests.waiting_room.due(now, why_not_served)]

    def _end_drained(self, now: float) -> list[Decision]:
        """End all requests when the time for draining has ended."""
        if self.state.drained_at is None or now < self.state.drained_at:
            return []
        error = ShuttingDown("the balancer shut down before the request had ended")
        return self.state.end(dict.fromkeys(self.state.lives, error), now)

    def _end_stranded(self, now: float) -> list[Decision]:
        """While draining, end the requests that no agent can serve."""
        if not self.state.is_draining:
            return []
        error = ShuttingDown(
            "the balancer is shutting down, and no agent can serve this request now"
        )
        requests = self.state.requests.dispatch.stranded()
        stranded = [*requests, *self.state.dispatcher.stranded()]
        return self.state.end(dict.fromkeys(stranded, error), now)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self.state.check_integrity()
        self.admission.check_integrity()
        self.steering.cordons.check_integrity()


def _finish(id: RequestId, error: RequestError) -> Finish:
    """Return the end of an unknown request or query."""
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


def _error(request: Request, wire: WireError) -> RequestError:
    """Return the error for the client. Only a client that cancelled is told of a cancellation."""
    if wire.code == Cancelled.code and not request.is_cancelling:
        return EngineFailed(wire.message)
    return from_agent(wire)
