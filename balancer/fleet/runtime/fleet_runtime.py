"""The shell around the fleet's core: feeds it events and time, carries out every decision.

Invariant: a stream or a query handle is here exactly as long as its request has not ended; a peer
exactly as long as the core knows its link. All of it runs on one event loop, and nothing but
`drain`, `run` and `changes` waits, so every event is carried out whole before the next.
"""

import asyncio
import logging
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol, assert_never

from ....shared.errors import AgentLost, RequestError
from ....shared.inference import AgentId, Done, Event, Failed, GenerateRequest, RequestId, Waiting
from ....shared.log import context
from ....shared.messages import FromAgent, FromBalancer, Hello
from ....shared.reports.log_lines import LogLine
from ....shared.reports.model_info import Task
from ....shared.tracing.tracer import NO_TRACER, Tracer
from ...access.identity import Identity
from ...access.limits.account import Standing
from ...control.agent_plan import AgentPlan
from ...control.desired_state import DesiredState
from ...control.model_status import ModelStatus
from ..caller import ANONYMOUS, Caller
from ..core.fleet import Fleet
from ..decisions import (
    Decision,
    Deliver,
    DeliverTokens,
    Disconnect,
    Finish,
    FirstToken,
    LinkId,
    Moved,
    Refuse,
    Send,
    Settle,
    ShowLog,
)
from ..limits import Limits
from ..queries.query import QueryRequest
from ..queries.query_handle import QueryHandle
from ..recorder import Ending, Recorder
from ..view import AgentView, Cordon, FleetDelta, FleetTotals, FleetView, ModelView, RequestView
from .log_reads import PATIENCE, LogReads
from .stream import Stream

logger = logging.getLogger(__name__)

WATCH_INTERVAL = 0.2
"""Shortest time between two looks at the fleet of one watcher, in seconds."""

_TIMER_GRAIN = 0.001
"""Event loops round to milliseconds; a shorter timer would fire early, again and again."""


def new_request_id() -> RequestId:
    """One that no other request has."""
    return RequestId(uuid.uuid4().hex)


def new_seed() -> int:
    """A seed that nobody can guess."""
    return secrets.randbits(32)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What has not left to agents: messages, and the bytes of large ones on their way."""

    num_messages: int = 0
    num_bytes: int = 0


class Peer(Protocol):
    """An agent's socket. No method waits or raises."""

    def backlog(self) -> Backlog:
        """What waits here; bytes of large messages that came in part count as well."""

    def send(self, message: FromBalancer) -> None:
        """Put a message on the socket, after those before."""

    def disconnect(self, reason: str) -> None:
        """Close the socket when everything sent has left."""


class Sink(Protocol):
    """Where the events of one request go."""

    @property
    def id(self) -> RequestId: ...

    def put(self, event: Event, /) -> None:
        """Another event; `Done` or `Failed` is the last. Must not raise."""


class FleetRuntime:
    """One for each balancer; APIs, management and agent sockets all use it."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        recorder: Recorder,
        tracer: Tracer = NO_TRACER,
        clock: Callable[[], float] = time.monotonic,
        draw_seed: Callable[[], int] = new_seed,
        watch_interval: float = WATCH_INTERVAL,
    ) -> None:
        self._fleet = fleet
        self._recorder = recorder
        self._tracer = tracer
        self._clock = clock
        self._draw_seed = draw_seed
        self._watch_interval = watch_interval
        self._streams: dict[RequestId, Sink] = {}
        self._query_handles: dict[RequestId, QueryHandle] = {}
        self._peers: dict[LinkId, Peer] = {}
        self._log_reads = LogReads()
        self._links = count(1)
        self._revision = fleet.revision
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def limits(self) -> Limits:
        """How much may wait and how long anything may take."""
        return self._fleet.limits

    # ---- clients

    def open(
        self,
        request: GenerateRequest,
        id: RequestId | None = None,
        *,
        caller: Caller,
        tell_waiting: float | None = None,
        together: int = 1,
    ) -> Stream:
        """Accept `request`; its stream tells about waits longer than `tell_waiting` seconds.

        It is the first of `together` requests like it, all of which will be opened, or none.

        Raises why it is refused, such as `QueueFull` or `RateLimited`.

        The APIs check before that agents can read it (`api/common/readable`). An `id` is
        one of `new_request_id`, for callers that have to know it even if the request is refused.
        """
        stream = Stream(new_request_id() if id is None else id, self._close)
        self.open_into(stream, request, caller=caller, tell_waiting=tell_waiting, together=together)
        return stream

    def open_into(
        self,
        sink: Sink,
        request: GenerateRequest,
        *,
        caller: Caller,
        tell_waiting: float | None = None,
        together: int = 1,
    ) -> None:
        """Accept `request`, whose events go to `sink`, under its id. See `open`."""
        self._streams[sink.id] = sink
        caller = self._traced(caller)
        request = self._seeded(request)
        decisions = self._fleet.request_arrived(
            sink.id,
            request,
            self._clock(),
            caller=caller,
            tell_waiting=tell_waiting,
            together=together,
        )
        self._accept(sink.id, decisions)

    def _seeded(self, request: GenerateRequest) -> GenerateRequest:
        """With a seed, so that another agent goes on with the same one; greedy ones need none."""
        if request.seed is not None or request.temperature == 0:
            return request
        return replace(request, seed=self._draw_seed())

    def ask(self, query_request: QueryRequest, *, caller: Caller) -> QueryHandle:
        """Accept `query_request`. Raises as `open` does, and for what no agent here can answer."""
        handle = QueryHandle(new_request_id(), self._close)
        self._query_handles[handle.id] = handle
        self._accept(
            handle.id,
            self._fleet.query_arrived(
                handle.id, query_request, self._clock(), caller=self._traced(caller)
            ),
        )
        return handle

    def _traced(self, caller: Caller) -> Caller:
        """`caller` with a span for one request of theirs."""
        trace = self._tracer.begin(caller.trace_parent)
        return caller if trace is None else replace(caller, trace=trace)

    def _accept(self, id: RequestId, decisions: list[Decision]) -> None:
        """Carry out what follows from a newcomer; raise what it was refused with."""
        refusals = [decision for decision in decisions if isinstance(decision, Refuse)]
        if refusals:
            self._forget(id)
        self._carry_out(decisions)
        for refusal in refusals:
            raise refusal.error

    @property
    def num_limited_callers(self) -> int:
        """Callers whose limits are counted."""
        return self._fleet.num_limited_callers

    def standing(self, caller: Caller) -> Standing:
        """How much of its limits a caller has left."""
        return self._fleet.standing(caller, self._clock())

    def cancel(self, ids: Iterable[RequestId]) -> int:
        """Cancel all of `ids` at once; the number of them that had not ended."""
        live = [id for id in dict.fromkeys(ids) if id in self._fleet]
        self._carry_out(self._fleet.cancel(live, self._clock()))
        return len(live)

    def revoked(self, owner: str, error: RequestError) -> None:
        """A caller may no longer be here: what it made ends with `error`."""
        self._carry_out(self._fleet.revoked(owner, error, self._clock()))

    def _close(self, id: RequestId) -> None:
        self._carry_out(self._fleet.close(id, self._clock()))
        self._forget(id)

    def _forget(self, id: RequestId) -> None:
        self._streams.pop(id, None)
        self._query_handles.pop(id, None)

    # ---- agents

    def agent_joined(self, peer: Peer, hello: Hello, holder: Identity | None = None) -> LinkId:
        """An agent said hello. It is answered through `peer`, also if it is not let in.

        `holder` is that of the key that it came with.
        """
        link = LinkId(next(self._links))
        self._peers[link] = peer
        self._carry_out(self._fleet.agent_joined(link, hello, self._clock(), holder))
        return link

    def agent_said(self, link: LinkId, message: FromAgent) -> None:
        """An agent sent something else."""
        self._carry_out(self._fleet.agent_said(link, message, self._clock()))

    def agent_heard(self, link: LinkId) -> None:
        """A part of a message came from an agent."""
        self._carry_out(self._fleet.agent_heard(link, self._clock()))

    def agent_left(self, link: LinkId) -> None:
        """An agent's socket is closed, from whichever side."""
        self._carry_out(self._fleet.agent_left(link, self._clock()))
        self._peers.pop(link, None)

    # ---- operators

    def wished(self, wish: DesiredState) -> None:
        """The fleet should serve this from now on."""
        self._carry_out(self._fleet.wished(wish, self._clock()))

    def restored(self, wish: DesiredState) -> None:
        """The fleet should serve this, and did so before the balancer started."""
        self._carry_out(self._fleet.restored(wish, self._clock()))

    def cordon(self, agent: AgentId, within: float | None) -> None:
        """Give an agent no new work; what it runs moves after `within` seconds, if given.

        Raises `NotFound`, as the others do.
        """
        self._carry_out(self._fleet.cordon(agent, within, self._clock()))

    def resume(self, agent: AgentId) -> None:
        """Give an agent work again."""
        self._carry_out(self._fleet.resume(agent, self._clock()))

    def reload(self, agent: AgentId, drain_timeout: float) -> None:
        """Have an agent load its model anew."""
        self._carry_out(self._fleet.reload(agent, drain_timeout, self._clock()))

    async def read_log(self, agent: AgentId, after: int) -> tuple[LogLine, ...]:
        """The last lines of an agent's log, of those with numbers above `after`.

        Raises `NotFound`, `NotSupported`, `RateLimited`, or `AgentLost` if it does not answer.
        """
        id = new_request_id()
        with self._log_reads.expect(id) as lines:
            self._carry_out(self._fleet.read_log(id, agent, after, self._clock()))
            try:
                async with asyncio.timeout(PATIENCE):
                    return await lines
            except TimeoutError:
                raise AgentLost(f"the agent did not answer within {PATIENCE:g} s") from None

    @property
    def num_log_reads(self) -> int:
        """Readers who wait for agents' logs."""
        return len(self._log_reads)

    def cordon_of(self, agent: AgentId) -> Cordon | None:
        """The cordon of an agent that gets no new work."""
        return self._fleet.cordon_of(agent)

    def restore_cordons(self, cordons: Iterable[Cordon]) -> None:
        """These were there before the balancer started, oldest first."""
        self._fleet.restore_cordons(cordons)

    def dry_run(self, wish: DesiredState) -> list[AgentPlan]:
        """What each agent would do if this were wished for. Costs the size of the fleet."""
        return self._fleet.dry_run(wish, self._clock())

    # ---- what others see

    def statuses(self) -> Mapping[str, ModelStatus]:
        """How each wished model is."""
        return self._fleet.statuses()

    def view(self, max_requests: int | None = None) -> FleetView:
        """The totals, all agents, and the oldest requests. Costs in proportion to their number."""
        return self._fleet.view(self._clock(), max_requests)

    def agent(self, id: AgentId) -> AgentView | None:
        """One agent, if it is connected."""
        return self._fleet.agent(id, self._clock())

    def requests(self) -> Iterator[RequestView]:
        """Requests and queries that have not ended, oldest first; each costs when it comes."""
        return self._fleet.requests(self._clock())

    def request(self, id: RequestId) -> RequestView | None:
        """One request or query, if it has not ended."""
        return self._fleet.request(id, self._clock())

    def waiting(self, id: RequestId) -> Waiting | None:
        """What a request can expect that waits for an agent; `None` of any other."""
        return self._fleet.waiting(id, self._clock())

    def backlog(self) -> Backlog:
        """What waits for all agents. Costs in proportion to their number."""
        waiting = [peer.backlog() for peer in self._peers.values()]
        return Backlog(
            sum(each.num_messages for each in waiting), sum(each.num_bytes for each in waiting)
        )

    @property
    def revision(self) -> int:
        """Grows with everything that others can see."""
        return self._fleet.revision

    def changes_since(self, revision: int) -> FleetDelta | None:
        """What changed after `revision`; `None` if that is too long ago, so take a `view`."""
        return self._fleet.changes_since(revision, self._clock())

    def tokens_since(self, revision: int) -> list[tuple[AgentId, int]]:
        """The agents that gave tokens after `revision`, and how many they gave so far."""
        return self._fleet.tokens_since(revision)

    def models(self, caller: Caller = ANONYMOUS) -> tuple[ModelView, ...]:
        """Every known model that the caller may use, by name."""
        return self._fleet.models(caller)

    def model(self, name: str, caller: Caller = ANONYMOUS) -> ModelView | None:
        """The known model of that name, if the caller may use it."""
        return self._fleet.model(name, caller)

    def model_name_for(self, task: Task | None, caller: Caller = ANONYMOUS) -> str:
        """The name in answers to requests that named no model; empty where none can do `task`."""
        return self._fleet.model_name_for(task, caller)

    def totals(self) -> FleetTotals:
        """The fleet now in a few numbers, at a constant cost."""
        return self._fleet.totals()

    async def changes(self) -> AsyncIterator[None]:
        """Yields at once, then after changes, at most once in a `watch_interval`."""
        while True:
            changed = self._changed
            yield
            await asyncio.sleep(self._watch_interval)
            await changed.wait()

    # ---- time, and the end of it

    def tick(self) -> None:
        """Carry out whatever is due; the timer of `run` calls it."""
        self._carry_out(self._fleet.tick(self._clock()))

    async def run(self) -> None:
        """Keep the deadlines, until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._arm()
        try:
            await asyncio.Event().wait()
        finally:
            self._loop = None
            self._disarm()

    async def drain(self, within: float) -> None:
        """Refuse what is new; return when every request has ended, after `within` seconds at most.

        What is left by then ends with `shutting_down`. Needs `run` to be running.
        """
        now = self._clock()
        self._carry_out(self._fleet.drain(now, now + within))
        while not self._fleet.is_idle:
            await self._changed.wait()

    def goodbye(self) -> None:
        """Say `Goodbye` to every agent, close their sockets and let no more in."""
        self._carry_out(self._fleet.goodbye(self._clock()))

    # ---- inside

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Deliver(request=id, event=event):
                    self._deliver(id, event)
                case DeliverTokens():
                    self._deliver_tokens(decision)
                case FirstToken(seconds=seconds, origin=origin):
                    self._recorder.first_token(seconds, origin)
                case Moved():
                    self._recorder.moved(decision.reason, decision.origin)
                    _log_move(decision)
                case Send(link=link, message=message):
                    self._peers[link].send(message)
                case Disconnect(link=link, reason=reason):
                    self._peers.pop(link).disconnect(reason)
                case Finish(ending=ending):
                    self._fleet.settle(ending, self._clock())
                    self._recorder.ended(ending)
                    _log(ending)
                case Settle(query=id, outcome=outcome):
                    self._query_handles.pop(id).settle(outcome)
                case ShowLog(message=message):
                    self._log_reads.read(message)
                case Refuse():
                    pass  # `open` raises it
                case _:
                    assert_never(decision)
        self._arm()
        self._notify()

    def _deliver(self, id: RequestId, event: Event) -> None:
        stream = self._streams[id]
        stream.put(event)
        if isinstance(event, Done | Failed):
            del self._streams[id]

    def _deliver_tokens(self, delivery: DeliverTokens) -> None:
        streams = self._streams
        for id, token in delivery.tokens:
            streams[id].put(token)
        self._recorder.tokens(delivery.num_tokens, delivery.origin)
        self._recorder.between_tokens(delivery.gaps, delivery.origin)

    def _notify(self) -> None:
        if self._revision != self._fleet.revision:
            self._revision = self._fleet.revision
            self._changed.set()
            self._changed = asyncio.Event()

    def _arm(self) -> None:
        """See to it that the timer fires no later than the next deadline."""
        deadline = self._fleet.next_deadline()
        if self._loop is None or deadline is None:
            return
        if self._timer is not None and self._timer_at <= deadline:
            return
        self._disarm()
        delay = max(deadline - self._clock(), _TIMER_GRAIN)
        self._timer = self._loop.call_later(delay, self._on_timer)
        self._timer_at = deadline

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.tick()


def _log(ending: Ending) -> None:
    timings = ending.timings
    values = context(
        id=ending.request_id,
        agent=ending.agent,
        caller=ending.caller.name,
        address=ending.caller.address,
        user_agent=ending.caller.user_agent,
        code=ending.code,
        prompt_tokens=ending.usage.prompt_tokens,
        completion_tokens=ending.usage.completion_tokens,
        queue_ms=timings.queue_ms,
        first_token_ms=timings.first_token_ms,
        total_ms=timings.total_ms,
        error=ending.error.message if ending.error is not None else None,
    )
    if ending.is_suspect:
        logger.warning("request ended: it may be what ends its agents", extra=values)
    else:
        logger.info("request ended", extra=values)


def _log_move(moved: Moved) -> None:
    values = context(id=moved.request, agent=moved.origin.agent, reason=moved.reason)
    logger.info("request moves to another agent", extra=values)
