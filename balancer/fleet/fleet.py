"""The balancer's core: one method for each event of clients, agents and time.

Composes the requests (dispatch and lifecycles), the query dispatcher, and the registry. The
caller carries the decisions out in their order, and calls `tick` at `next_deadline`.

How races end:
- A deadline that has come counts before the event that arrives with it: a slot that frees at the
  moment a waiting request times out comes too late for it.
- What an agent sends about a request that it does not have (any more) is ignored and counted, and
  so is what comes over a link that was given up. Frames are in order, so a slot is free as soon
  as the `Cancel` is sent: the `Start` that follows finds it free.
- A client that disconnects ends its request at once, at any stage. One that cancels gets the
  agent's answer; if the agent does not start the request, or is lost, the request ends with
  `cancelled` and no other agent starts it.
- When an agent is lost, its requests without any answer start next on other agents. A request
  that `MAX_AGENTS_LOST` agents were lost with ends, since it may be the cause.
- An agent that dials again while its old link still seems alive takes the old one's place.
- An agent that answers `Busy` is full until something of its ends, it reports a change, or
  `BUSY_PAUSE` has passed: other balancers may hold its slots, and no message says when they free
  them. One that declines a query gets none of that kind for a while.

Invariants: every accepted request ends exactly once; a link's requests are those that dispatch has
on it; with draining, nobody waits whom no agent can serve.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import chain, islice
from typing import assert_never

from ...shared.errors import RequestError, ShuttingDown, from_wire
from ...shared.inference import AgentId, GenerateRequest, RequestId
from ...shared.messages import (
    PROTOCOL_VERSION,
    Busy,
    Called,
    CallStarted,
    Ended,
    FromAgent,
    Goodbye,
    Heartbeat,
    Hello,
    Item,
    Noticed,
    Output,
    Piece,
    PromptRead,
    Refused,
    Reject,
    Reply,
    Statistics,
    Status,
    Task,
    Welcome,
)
from .caller import ANONYMOUS, Caller
from .change_log import ChangeLog
from .decisions import Decision, Disconnect, LinkId, Send
from .limits import Limits
from .model_registry import ModelRegistry
from .queries.query import QueryLifecycle, QueryRequest
from .queries.query_dispatcher import QueryDispatcher
from .registry import Agent, Registry
from .requests.request_lifecycle import RequestLifecycle
from .requests.requests import Requests, refuse
from .view import AgentView, FleetDelta, FleetTotals, FleetView, ModelView, RequestView

NoPiece = CallStarted | Called | Noticed | PromptRead | Ended | Refused | Busy


class Fleet:
    """One method per event; the module's docstring has the invariants."""

    def __init__(self, limits: Limits, *, version: str = "") -> None:
        self.limits = limits
        self._version = version
        self._changes = ChangeLog()
        self._registry = Registry(limits, self._changes)
        self._models = ModelRegistry(memory=limits.model_memory)
        self._requests = Requests(limits, self._registry, self._changes)
        self._dispatcher = QueryDispatcher(limits, self._registry, self._changes)
        self._drained_at: float | None = None
        self._is_closed = False
        self._tokens_total = 0
        self._items_ignored = 0

    def __contains__(self, id: object) -> bool:
        """Whether a request was accepted and has not ended."""
        return id in self._requests or id in self._dispatcher

    @property
    def revision(self) -> int:
        """Grows with everything that others can see, except with the mere passing of time."""
        return self._changes.revision

    @property
    def is_idle(self) -> bool:
        """Whether every accepted request has ended."""
        return len(self._requests) == 0 and len(self._dispatcher) == 0

    def next_deadline(self) -> float | None:
        """When to call `tick`. Nothing may be due then: deadlines move later."""
        if self._is_closed:
            return None
        cores = (self._requests, self._dispatcher, self._registry, self._models)
        deadlines = [core.next_deadline() for core in cores]
        if not self.is_idle:
            deadlines.append(self._drained_at)
        return min((d for d in deadlines if d is not None), default=None)

    # ---- clients

    def refusal(self, request: GenerateRequest) -> RequestError | None:
        """Why a request would be refused, whatever the queue holds; it costs a look-up or two."""
        if self._drained_at is not None:
            return _going_down()
        refusal = self._models.refusal("generate", request.model)
        return refusal or self._models.too_long(request)

    def _refusal_of(self, query_request: QueryRequest) -> RequestError | None:
        if self._drained_at is not None:
            return _going_down()
        return self._models.refusal(query_request.task, query_request.model)

    def request_arrived(
        self, id: RequestId, request: GenerateRequest, now: float, *, caller: Caller = ANONYMOUS
    ) -> list[Decision]:
        """A client sent a request. Accepted, unless there is a `Refuse` among the decisions."""
        decisions = self._due(now)
        self._changes.advance()
        error = self.refusal(request)
        if error is None:
            return [*decisions, *self._requests.admit(id, request, caller, now)]
        lifecycle = RequestLifecycle(id, request, self.limits, now, caller=caller)
        return [*decisions, *refuse(lifecycle, error, now)]

    def query_arrived(
        self, id: RequestId, query_request: QueryRequest, now: float, *, caller: Caller = ANONYMOUS
    ) -> list[Decision]:
        """A client sent a query, which takes no slot. Accepted as in `request_arrived`."""
        decisions = self._due(now)
        self._changes.advance()
        error = self._refusal_of(query_request)
        if error is None:
            return [*decisions, *self._dispatcher.admit(id, query_request, caller, now)]
        lifecycle = QueryLifecycle(id, query_request, self.limits, now, caller=caller)
        return [*decisions, *self._dispatcher.refuse(lifecycle, error, now)]

    def close(self, id: RequestId, now: float) -> list[Decision]:
        """A client disconnected; nothing more is delivered to it."""
        decisions = self._due(now)
        if id not in self:
            return decisions
        self._changes.advance()
        if (lifecycle := self._requests.get(id)) is not None:
            return [*decisions, *self._requests.close(lifecycle, now)]
        return [*decisions, *self._dispatcher.close(id, now)]

    def cancel(self, ids: Iterable[RequestId], now: float) -> list[Decision]:
        """Cancel all of these at once: none of them starts any more."""
        decisions = self._due(now)
        live = [id for id in dict.fromkeys(ids) if id in self]
        lifecycles = [e for id in live if (e := self._requests.get(id)) is not None]
        queries = [id for id in live if id in self._dispatcher]
        if live:
            self._changes.advance()
        cancelled = self._requests.cancel(lifecycles, now)
        return [*decisions, *cancelled, *self._dispatcher.cancel(queries, now)]

    # ---- agents

    def agent_joined(self, link: LinkId, hello: Hello, now: float) -> list[Decision]:
        """An agent dialled and said hello. It is welcomed, or rejected and disconnected."""
        decisions = self._due(now)
        if (rejection := self._rejection(hello)) is not None:
            return [*decisions, Send(link, rejection), Disconnect(link, rejection.reason)]
        self._changes.advance()
        old = self._registry.link_of(hello.agent_id)
        if old is not None:
            decisions += self._dismiss(self._registry[old], "the agent has dialled again", now)
        agent = self._registry.joined(link, hello, now)
        self._models.agent_changed(link, agent.model, agent.loading, now)
        decisions.append(self._registry.send(link, self._welcome(), now))
        decisions += self._requests.agent_joined(agent, now)
        decisions += self._dispatcher.agent_changed(agent, now)
        return [*decisions, *self._end_stranded(now)]

    def agent_said(self, link: LinkId, message: FromAgent, now: float) -> list[Decision]:
        """A frame came over a link."""
        decisions = self._due(now)
        agent = self._registry.get(link)
        if agent is None:
            return decisions
        agent.heartbeat.heard(now)
        match message:
            case Output():
                decisions += self._output(agent, message.items, now)
            case Heartbeat():
                return decisions
            case Status():
                agent.changed(message)
                self._models.agent_changed(link, agent.model, agent.loading, now)
                self._registry.touch(link)
                decisions += self._requests.agent_changed(agent, now)
                decisions += self._dispatcher.agent_changed(agent, now)
            case Reply():
                decisions += self._reply(agent, message, now)
            case Statistics():
                agent.statistics = message
                self._registry.touch(link)
            case Hello():
                decisions += self._dismiss(agent, "a second hello on one link", now)
            case _:
                assert_never(message)
        self._changes.advance()
        return [*decisions, *self._end_stranded(now)]

    def agent_heard(self, link: LinkId, now: float) -> list[Decision]:
        """A part of a message came over a link: a sign of life."""
        decisions = self._due(now)
        if (agent := self._registry.get(link)) is not None:
            agent.heartbeat.heard(now)
        return decisions

    def agent_left(self, link: LinkId, now: float) -> list[Decision]:
        """A link's socket is closed."""
        decisions = self._due(now)
        agent = self._registry.get(link)
        if agent is None:
            return decisions
        return [*decisions, *self._lose(agent, now), *self._end_stranded(now)]

    # ---- time, and the end of it

    def tick(self, now: float) -> list[Decision]:
        """Whatever is due at `now`.

        Agents are given up here only: when the timer fires, what they sent has been read, however
        long that took.
        """
        return self._due(now, is_timer=True)

    def drain(self, now: float, deadline: float) -> list[Decision]:
        """Accept nothing more; what has not ended by `deadline` ends then."""
        self._changes.advance()
        self._drained_at = deadline
        return [*self._due(now), *self._end_stranded(now)]

    def goodbye(self, now: float) -> list[Decision]:
        """End what has not ended, let every agent go and none in."""
        decisions = self.drain(now, now)
        self._is_closed = True
        for agent in list(self._registry):
            decisions.append(self._registry.send(agent.link, Goodbye(), now))
            decisions += self._dismiss(agent, "the balancer is going down", now)
        return decisions

    # ---- what others see

    def totals(self) -> FleetTotals:
        """The fleet in a few numbers, at a constant cost."""
        dispatch = self._requests.dispatch
        return FleetTotals(
            num_agents=len(self._registry),
            is_ready=dispatch.is_ready or self._dispatcher.is_ready,
            is_draining=self._drained_at is not None,
            queue_depth=dispatch.num_waiting,
            queue_limit=self.limits.max_buffered_requests,
            slots_total=dispatch.num_slots,
            slots_busy=dispatch.num_running,
            tokens_total=self._tokens_total,
            items_ignored=self._items_ignored,
            parts_waiting=self._dispatcher.num_pending,
            parts_asked=self._dispatcher.num_asked,
            num_requests=len(self._requests) + len(self._dispatcher),
            num_models=len(self._models),
            num_models_unloaded=self._models.num_remembered,
        )

    def models(self) -> tuple[ModelView, ...]:
        """Every known model, by name."""
        return self._models.views()

    def model(self, name: str) -> ModelView | None:
        """The known model of that name."""
        return self._models.get(name)

    def model_name_for(self, task: Task | None) -> str:
        """The name in answers to requests that named no model; empty where none can do `task`."""
        return self._models.name_for(task)

    def requests(self, now: float) -> Iterator[RequestView]:
        """Requests and then queries that have not ended, oldest first; each costs when it comes."""
        return chain(self._requests.views(now), self._dispatcher.views(now))

    def agent(self, id: AgentId, now: float) -> AgentView | None:
        """One agent, if it is connected."""
        link = self._registry.link_of(id)
        return None if link is None else self._agent_view(self._registry[link], now)

    def view(self, now: float, max_requests: int | None = None) -> FleetView:
        """The totals, all agents, and the oldest requests, at a cost of their number."""
        totals = self.totals()
        return FleetView(
            agents=tuple(self._agent_view(agent, now) for agent in self._registry),
            requests=tuple(islice(self.requests(now), max_requests)),
            **{field.name: getattr(totals, field.name) for field in fields(totals)},
        )

    def changes_since(self, revision: int, now: float) -> FleetDelta | None:
        """What changed after `revision`; `None` if that is too long ago, so take a `view`."""
        changes = self._changes.since(revision)
        if changes is None:
            return None
        agents, requests = changes
        return FleetDelta(
            revision=self.revision,
            totals=self.totals(),
            agents=tuple(self._agent_view(self._registry.of(id), now) for id in agents.changed),
            agents_left=agents.gone,
            requests=tuple(self._request_view(id, now) for id in requests.changed),
            requests_ended=requests.gone,
        )

    # ---- inside

    def _agent_view(self, agent: Agent, now: float) -> AgentView:
        return agent.view(self._requests.dispatch.num_running_on(agent.link), now)

    def _request_view(self, id: RequestId, now: float) -> RequestView:
        if (lifecycle := self._requests.get(id)) is not None:
            return self._requests.view(lifecycle, now)
        return self._dispatcher[id].view(now)

    def _output(self, agent: Agent, items: Iterable[Item], now: float) -> list[Decision]:
        """A step's items in their order; those in a row that are pieces count as one change."""
        decisions: list[Decision] = []
        pieces: list[tuple[RequestLifecycle, Piece]] = []
        for item in items:
            lifecycle = self._requests.get(item.id)
            if lifecycle is None or lifecycle.link != agent.link:
                self._items_ignored += 1
            elif isinstance(item, Piece):
                pieces.append((lifecycle, item))
            else:
                if pieces:
                    decisions += self._pieces(agent, pieces, now)
                    pieces = []
                decisions += self._item(agent, lifecycle, item, now)
        if pieces:
            decisions += self._pieces(agent, pieces, now)
        return decisions

    def _pieces(
        self, agent: Agent, pieces: list[tuple[RequestLifecycle, Piece]], now: float
    ) -> list[Decision]:
        num_tokens = sum(len(piece.tokens) for _, piece in pieces)
        agent.num_tokens += num_tokens
        self._tokens_total += num_tokens
        self._registry.touch(agent.link)
        return self._requests.pieces(pieces, now)

    def _item(
        self, agent: Agent, lifecycle: RequestLifecycle, item: NoPiece, now: float
    ) -> Iterable[Decision]:
        requests = self._requests
        match item:
            case CallStarted() | Called() | Noticed() | PromptRead():
                return requests.received(lifecycle, item, now)
            case Ended():
                return requests.done(lifecycle, item, now)
            case Refused() if item.error.code != ShuttingDown.code or lifecycle.has_streamed:
                return requests.fail(lifecycle, from_wire(item.error), now)
            case Refused() | Busy():
                self._registry.rests(agent, now)
                return requests.hand_back(lifecycle, now)
            case _:
                assert_never(item)

    def _reply(self, agent: Agent, reply: Reply, now: float) -> list[Decision]:
        decisions = self._dispatcher.replied(agent, reply, now)
        if decisions is None:
            self._items_ignored += 1
            return []
        return decisions

    def _rejection(self, hello: Hello) -> Reject | None:
        if self._is_closed:
            return Reject(reason="the balancer is going down", retry=True)
        if hello.protocol != PROTOCOL_VERSION:
            spoken = f"the balancer speaks protocol {PROTOCOL_VERSION}, the agent {hello.protocol}"
            return Reject(reason=f"{spoken}: install the same version on both", retry=False)
        return None

    def _welcome(self) -> Welcome:
        return Welcome(
            protocol=PROTOCOL_VERSION,
            version=self._version,
            heartbeat_interval=self.limits.heartbeat_interval,
            heartbeat_timeout=self.limits.heartbeat_timeout,
        )

    def _dismiss(self, agent: Agent, reason: str, now: float) -> list[Decision]:
        """Let go of its link, and treat it as lost."""
        return [Disconnect(agent.link, reason), *self._lose(agent, now)]

    def _lose(self, agent: Agent, now: float) -> list[Decision]:
        self._changes.advance()
        self._registry.left(agent.link)
        self._models.agent_left(agent.link, now)
        return [*self._requests.agent_left(agent, now), *self._dispatcher.agent_left(agent, now)]

    def _end_stranded(self, now: float) -> list[Decision]:
        """With draining, nobody waits whom no agent can serve."""
        if self._drained_at is None:
            return []
        error = ShuttingDown("the balancer is shutting down and no agent can serve this")
        stranded = self._requests.end_stranded(error, now)
        return [*stranded, *self._dispatcher.end_stranded(error, now)]

    def _due(self, now: float, *, is_timer: bool = False) -> list[Decision]:
        """What has come due, in the order that starts nothing in vain."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        if self._models.due(now):
            self._changes.advance()
        decisions: list[Decision] = []
        if self._drained_at is not None and self._drained_at <= now:
            error = ShuttingDown("the balancer shut down before the request had ended")
            decisions += self._requests.end_all(error, now)
            decisions += self._dispatcher.end_all(error, now)
        agents = self._registry.due(now)
        silent = [agent for agent in agents if is_timer and agent.heartbeat.is_lost(now)]
        heard = [agent for agent in agents if not (is_timer and agent.heartbeat.is_lost(now))]
        for agent in silent:
            agent.is_accepting = False
            self._requests.agent_changed(agent, now)
            self._dispatcher.agent_changed(agent, now)
        decisions += self._requests.due(now)
        decisions += self._dispatcher.due(now)
        for agent in silent:
            reason = f"silent for {self.limits.heartbeat_timeout:g} s"
            decisions += self._dismiss(agent, reason, now)
        if decisions:
            self._changes.advance()
        for agent in heard:
            decisions += self._attend(agent, now)
        return [*decisions, *self._end_stranded(now)]

    def _attend(self, agent: Agent, now: float) -> list[Decision]:
        """Give it work again after its pause, and send a heartbeat where one is due."""
        decisions: list[Decision] = []
        if agent.rested_at is not None and agent.rested_at <= now:
            agent.rested_at = None
            decisions += self._requests.agent_rested(agent, now)
            decisions += self._dispatcher.agent_changed(agent, now)
            if decisions:
                self._changes.advance()
        agent.heartbeat.look(now)
        if agent.heartbeat.is_due(now):
            decisions.append(self._registry.send(agent.link, Heartbeat(), now))
        self._registry.seen_to(agent)
        return decisions

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._changes.check_integrity()
        self._registry.check_integrity()
        self._models.check_integrity()
        self._requests.check_integrity()
        self._dispatcher.check_integrity()
        if self.totals().num_agents != self._requests.dispatch.num_agents:
            raise RuntimeError("the registry and dispatch know different agents")


def _going_down() -> ShuttingDown:
    return ShuttingDown("the balancer is shutting down")
