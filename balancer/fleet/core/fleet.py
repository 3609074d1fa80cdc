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
- An agent that dials again while its old link still seems alive takes the old one's place.
- An agent that answers `Busy` is full until something of its ends, it reports a change, or
  `BUSY_PAUSE` has passed: other balancers may hold its slots, and no message says when they free
  them. One that declines a query gets none of that kind for a while.

Invariants: every accepted request ends exactly once; a link's requests are those that dispatch has
on it; with draining, nobody waits whom no agent can serve.
"""

from collections.abc import Iterable
from typing import assert_never

from ....shared.errors import NotFound, NotSupported, RequestError, ShuttingDown
from ....shared.inference import AgentId, Event, GenerateRequest, RequestId
from ....shared.messages import (
    FromAgent,
    Heartbeat,
    Hello,
    LogRead,
    Output,
    ReadLog,
    Reply,
    Status,
    Withdraw,
)
from ....shared.reports.statistics import Statistics
from ...access.identity import Identity
from ...control.desired_state import DesiredState
from ..caller import ANONYMOUS, Caller
from ..decisions import Decision, LinkId, ShowLog
from ..limits import Limits
from ..queries.query import QueryLifecycle, QueryRequest
from ..recorder import Ending
from ..registry import Agent
from ..requests.delivered import Delivered
from ..requests.request_lifecycle import RequestLifecycle
from ..requests.requests import refuse
from ..requests.routing import Engine
from ..view import Cordon
from .admission import UNCOUNTED
from .agent_output import AgentOutput
from .fleet_views import FleetViews
from .membership import Membership
from .state import empty_state

LOGS_SINCE = 8
"""The first version of the protocol in which agents are asked for their logs."""


class Fleet(FleetViews):
    """One method per event; the module's docstring has the invariants."""

    def __init__(self, limits: Limits, *, version: str = "") -> None:
        super().__init__(empty_state(limits, version))
        self._membership = Membership(self._state, self._steering)
        self._output = AgentOutput(self._state)

    def next_deadline(self) -> float | None:
        """When to call `tick`. Nothing may be due then: deadlines move later."""
        if self._state.is_closed:
            return None
        deadlines = (self._state.next_deadline(), self._steering.next_deadline())
        return min((each for each in deadlines if each is not None), default=None)

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
        decisions += self._membership.joined(link, hello, now, holder)
        return [*decisions, *self._end_stranded(now)]

    def agent_said(self, link: LinkId, message: FromAgent, now: float) -> list[Decision]:
        """A frame came over a link."""
        decisions = self._due(now)
        agent = self._state.registry.get(link)
        if agent is None:
            return decisions
        agent.heartbeat.heard(now)
        if isinstance(message, Heartbeat):
            return decisions
        decisions += self._said(agent, message, now)
        self._state.changes.advance()
        return [*decisions, *self._end_stranded(now)]

    def _said(
        self,
        agent: Agent,
        message: Hello | Status | Statistics | Output | Reply | LogRead,
        now: float,
    ) -> list[Decision]:
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
                self._membership.measured(agent, message)
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

    # ---- operators

    def wished(self, wish: DesiredState, now: float) -> list[Decision]:
        """The fleet should serve this from now on."""
        decisions = self._due(now)
        self._steering.wished(wish, now)
        return [*decisions, *self._renamed(now)]

    def restored(self, wish: DesiredState, now: float) -> list[Decision]:
        """The fleet should serve this, and did so before the balancer started."""
        decisions = self._due(now)
        self._steering.restored(wish, now)
        return [*decisions, *self._renamed(now)]

    def _renamed(self, now: float) -> list[Decision]:
        """What came before its alias follows it."""
        aliases = self._state.models.aliases
        requests = self._state.requests.renamed(aliases, now)
        return [*requests, *self._state.dispatcher.renamed(aliases, now)]

    def recall_models(self, names: Iterable[str], now: float) -> None:
        """These were served before the balancer started; no agent is here yet."""
        self._state.models.recalled(names, now)

    def restore_cordons(self, cordons: Iterable[Cordon]) -> None:
        """These were there before the balancer started, oldest first; no agent is here yet."""
        self._steering.cordons.restored(cordons)

    def cordon(self, id: AgentId, within: float | None, now: float) -> list[Decision]:
        """Give an agent no new work; what it still runs moves after `within` seconds, if given.

        Raises `NotFound`, as the others do.
        """
        agent = self._connected(id)
        deadline = None if within is None else now + within
        return [*self._due(now), *self._steering.cordon(agent, deadline, now)]

    def resume(self, id: AgentId, now: float) -> list[Decision]:
        """Give an agent work again."""
        agent = self._connected(id)
        return [*self._due(now), *self._steering.resume(agent, now)]

    def reload(self, id: AgentId, drain_timeout: float, now: float) -> list[Decision]:
        """Have an agent load its model anew; its requests may go on for `drain_timeout`."""
        agent = self._connected(id)
        return [*self._due(now), *self._steering.reload(agent, drain_timeout, now)]

    def read_log(
        self, id: RequestId, agent_id: AgentId, after: int, now: float, *, wait: bool = False
    ) -> list[Decision]:
        """Ask an agent for the lines of its log with numbers above `after`: a `ShowLog` follows.

        With `wait` it follows as soon as there are some. If the agent goes, a `LogLost` follows.
        Raises `NotFound`, and `NotSupported` for an agent of an older version.
        """
        decisions = self._due(now)
        agent = self._connected(agent_id)
        if agent.hello.protocol < LOGS_SINCE:
            raise NotSupported(f"agent {agent.name} is too old to show its log; upgrade it")
        self._state.log_readers.asked(id, agent.link)
        read = ReadLog(id=id, after=after, wait=wait)
        return [*decisions, self._state.registry.send(agent.link, read, now)]

    def stop_reading_log(self, id: RequestId, now: float) -> list[Decision]:
        """Nobody waits for these lines any more, if somebody did."""
        if (link := self._state.log_readers.ended(id)) is None:
            return []
        withdrawn = self._state.registry.send(link, Withdraw(id=id), now)
        return [*self._due(now), withdrawn]

    def _connected(self, id: AgentId) -> Agent:
        link = self._state.registry.link_of(id)
        if link is None:
            raise NotFound(f"no agent `{id[:100]}` is connected")
        return self._state.registry[link]

    # ---- time, and the end of it

    def tick(self, now: float) -> list[Decision]:
        """Whatever is due at `now`.

        Agents are given up here only: when the timer fires, what they sent has been read, however
        long that took.
        """
        return self._due(now, is_timer=True)

    def drain(self, now: float, deadline: float) -> list[Decision]:
        """Accept nothing more; what has not ended by `deadline` ends then."""
        self._state.changes.advance()
        self._state.drained_at = deadline
        return [*self._due(now), *self._end_stranded(now)]

    def goodbye(self, now: float) -> list[Decision]:
        """End what has not ended, let every agent go and none in."""
        decisions = self.drain(now, now)
        self._state.is_closed = True
        return [*decisions, *self._membership.say_goodbye(now)]

    def _due(self, now: float, *, is_timer: bool = False) -> list[Decision]:
        """What has come due, in the order that starts nothing in vain. Every event begins so."""
        self._state.requests.dispatch.now = now
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        state = self._state
        if state.models.due(now):
            state.changes.advance()
        decisions = self._end_drained(now)
        agents = state.registry.due(now)
        silent = [agent for agent in agents if is_timer and agent.heartbeat.is_lost(now)]
        heard = [agent for agent in agents if not (is_timer and agent.heartbeat.is_lost(now))]
        self._membership.suspend(silent, now)
        decisions += state.requests.due(now)
        decisions += state.dispatcher.due(now)
        decisions += self._membership.dismiss_silent(silent, now)
        if decisions:
            state.changes.advance()
        for agent in heard:
            decisions += self._membership.attend(agent, now)
        decisions += self._steering.due(now)
        decisions += self._end_stranded(now)
        return [*decisions, *state.requests.waiting_room.tell(now, self._seconds_to_load(now))]

    def _end_drained(self, now: float) -> list[Decision]:
        """When the time for draining is over, everything ends."""
        if self._state.drained_at is None or now < self._state.drained_at:
            return []
        error = ShuttingDown("the balancer shut down before the request had ended")
        ended = self._state.requests.end_all(error, now)
        return [*ended, *self._state.dispatcher.end_all(error, now)]

    def _end_stranded(self, now: float) -> list[Decision]:
        """With draining, nobody waits whom no agent can serve."""
        if not self._state.is_draining:
            return []
        error = ShuttingDown("the balancer is shutting down and no agent can serve this")
        stranded = self._state.requests.end_stranded(error, now)
        return [*stranded, *self._state.dispatcher.end_stranded(error, now)]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._state.check_integrity()
        self._admission.check_integrity()
        self._steering.cordons.check_integrity()
