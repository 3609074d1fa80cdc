"""Connects the fleet's core to the event loop: passes events and times in, carries out decisions.

Everything runs on one event loop. Only `drain`, `run`, `changes`, `read_log` and `read_fits` wait.
Each event is therefore handled completely before the next event.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Generic, TypeVar, assert_never

from ....shared.errors import AgentLost, NotSupported, RateLimited, RequestError
from ....shared.inference import AgentId, Done, Event, Failed, GenerateRequest, RequestId
from ....shared.inference.request import with_seed
from ....shared.log import context
from ....shared.messages import FitRead, FromAgent, Hello, Issue, LogRead, ReadFit
from ....shared.models.assignments import NumSlots
from ....shared.models.engine_options import AutoContext
from ....shared.reports.log_lines import LogLine
from ....shared.reports.model_info import ModelFit
from ....shared.tracing.tracer import NO_TRACER, Tracer
from ...access.identity import Identity
from ...control.demand import Demand
from ...control.desired_state import DesiredState
from ..caller import Account, Caller
from ..core.fleet import Fleet
from ..core.fleet_views import FleetViews
from ..decisions import (
    Decision,
    Deliver,
    DeliverTokens,
    Disconnect,
    Finish,
    FirstToken,
    LinkId,
    LogBad,
    Moved,
    ReadsLost,
    Refuse,
    Send,
    Settle,
    ShowFit,
    ShowLog,
)
from ..queries.query import QueryRequest
from ..recorder import Ending, Recorder
from ..requests.eligibility import Engine
from ..shares import Holding, Shares
from ..view import AgentView, Cordon, SharedCordon
from .outbox import AgentBacklog, AgentConnection
from .stream import QueryHandle, Sink, Stream

ANSWERS_PART = 4
"""Unread or incomplete answers may use the memory of all requests divided by this number."""

MAX_LOG_READS = 64
"""The maximum operators that wait for the logs of agents at the same time."""

LOG_PATIENCE = 5.0
"""The seconds that an agent has to send lines of its log."""

MAX_FITS = 4
"""The maximum operators that wait at the same time for the options that hosts would choose."""

FIT_PATIENCE = 60.0
"""The seconds that a host has to choose its options. The host's own deadline is earlier."""

FIT_TRIES = 3
"""The maximum number of times that a host is asked, because connections may be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFit:
    """The options that a host would choose for a model, or the reason why they are unknown."""

    host: AgentId
    name: str
    fit: ModelFit | None = None
    issue: Issue | None = None


_Sent = TypeVar("_Sent", LogRead, FitRead)


class Reads(Generic[_Sent]):
    """The readers that wait for answers of agents, by the id of their question.

    A reader waits until the answer arrives or the agent has left.
    """

    def __init__(self) -> None:
        self._waiting: dict[RequestId, asyncio.Future[_Sent]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def expect(self, id: RequestId) -> Iterator[asyncio.Future[_Sent]]:
        """Return a context with a future for the answer to the question `id`."""
        future = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            del self._waiting[id]

    def lost(self, ids: Iterable[RequestId]) -> None:
        """End the reads `ids` of an agent that has left."""
        for id in ids:
            if (future := self._waiting.get(id)) is not None and not future.done():
                future.set_exception(AgentLost("the agent has disconnected"))

    def read(self, message: _Sent) -> None:
        """Give an agent's answer to its reader. Ignores an answer without a reader."""
        future = self._waiting.get(message.id)
        if future is not None and not future.done():
            future.set_result(message)


_GRAIN = 0.001
"""The resolution of event loops in seconds. A shorter timer would fire early, again and again."""


class DeadlineTimer:
    """Calls `fire` at the deadline that was given to `arm`.

    While `run` runs, the event loop holds at most one timer of this object.
    """

    def __init__(self, fire: Callable[[], None], clock: Callable[[], float]) -> None:
        self._fire = fire
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    async def run(self, deadline: float | None) -> None:
        """Fire at `deadline`, and at later deadlines given to `arm`, until cancelled."""
        self._loop = asyncio.get_running_loop()
        self.arm(deadline)
        try:
            await asyncio.Event().wait()
        finally:
            self._loop = None
            self._disarm()

    def arm(self, deadline: float | None) -> None:
        """Fire at `deadline` at the latest. Does nothing if `run` does not run."""
        if self._loop is None or deadline is None:
            return
        if self._handle is not None and self._at <= deadline:
            return
        self._disarm()
        delay = max(deadline - self._clock(), _GRAIN)
        self._handle = self._loop.call_later(delay, self._on_time)
        self._at = deadline

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_time(self) -> None:
        self._handle = None
        self._fire()


class DecisionExecutor:
    """Carries out the core's decisions, with the sink of each request and socket of each link.

    Invariants: a sink or query handle exists exactly until its request has ended; a peer exists
    exactly as long as the core knows its link. No method waits, so decisions are carried out in
    order.
    """

    def __init__(
        self,
        fleet: Fleet,
        recorder: Recorder,
        log_reads: Reads[LogRead],
        fit_reads: Reads[FitRead],
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._recorder = recorder
        self._log_reads = log_reads
        self._fit_reads = fit_reads
        self._clock = clock
        self._sinks: dict[RequestId, Sink] = {}
        self._query_handles: dict[RequestId, QueryHandle] = {}
        self._peers: dict[LinkId, AgentConnection] = {}

    def add_sink(self, sink: Sink) -> None:
        """Register `sink` for the events of the request with its id."""
        self._sinks[sink.id] = sink

    def add_query(self, handle: QueryHandle) -> None:
        """Register `handle` for the outcome of the query with its id."""
        self._query_handles[handle.id] = handle

    def add_peer(self, link: LinkId, peer: AgentConnection) -> None:
        """Register `peer` for the messages to `link`."""
        self._peers[link] = peer

    def forget(self, id: RequestId) -> None:
        """Remove a request or query that was refused or that its reader has left."""
        self._sinks.pop(id, None)
        self._query_handles.pop(id, None)

    def forget_peer(self, link: LinkId) -> None:
        """Remove an agent whose socket is closed."""
        self._peers.pop(link, None)

    @property
    def waited_for(self) -> tuple[list[RequestId], list[RequestId]]:
        """Return the ids of requests and of queries with a waiting client. Costs their number."""
        return list(self._sinks), list(self._query_handles)

    def backlog(self) -> AgentBacklog:
        """Return the sum of all agents' backlogs, at a cost of the number of agents."""
        waiting = [peer.backlog() for peer in self._peers.values()]
        return AgentBacklog(
            sum(each.num_messages for each in waiting), sum(each.num_bytes for each in waiting)
        )

    def carry_out(self, decisions: Iterable[Decision]) -> bool:
        """Carry out `decisions` in order, except `Refuse`; the caller handles `Refuse`.

        Returns whether an internal error occurred.
        """
        is_broken = False
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
                    log_move(decision)
                case Send(link=link, message=message):
                    self._peers[link].send(message)
                case Disconnect(link=link, reason=reason):
                    self._peers.pop(link).disconnect(reason)
                case Finish(ending=ending):
                    self._finish(ending)
                case Settle(query=id, outcome=outcome):
                    self._query_handles.pop(id).settle(outcome)
                case ShowLog(message=message):
                    self._log_reads.read(message)
                case ShowFit(message=fit):
                    self._fit_reads.read(fit)
                case LogBad():
                    log_bad(decision)
                    is_broken = is_broken or decision.is_ours
                case ReadsLost(ids=ids):
                    self._log_reads.lost(ids)
                    self._fit_reads.lost(ids)
                case Refuse():
                    pass
                case _:
                    assert_never(decision)
        return is_broken

    def _deliver(self, id: RequestId, event: Event) -> None:
        sink = self._sinks[id]
        sink.put(event)
        if isinstance(event, (Done, Failed)):
            del self._sinks[id]

    def _deliver_tokens(self, delivery: DeliverTokens) -> None:
        sinks = self._sinks
        for id, token in delivery.tokens:
            sinks[id].put(token)
        self._recorder.tokens(delivery.num_tokens, delivery.origin)
        self._recorder.between_tokens(delivery.gaps, delivery.origin)

    def _finish(self, ending: Ending) -> None:
        self._fleet.settle(ending, self._clock())
        self._recorder.ended(ending)
        log_end(ending)


logger = logging.getLogger(__name__)


def log_end(ending: Ending) -> None:
    """Log the end of a request, with its figures."""
    timings = ending.timings
    values = context(
        id=ending.request_id,
        model=ending.model,
        agent=ending.agent,
        caller=ending.caller.name,
        address=ending.caller.address,
        user_agent=ending.caller.user_agent,
        code=ending.code,
        prompt_tokens=ending.usage.prompt_tokens,
        cached_tokens=ending.usage.cached_tokens,
        completion_tokens=ending.usage.completion_tokens,
        queue_ms=timings.queue_ms,
        first_token_ms=timings.first_token_ms,
        total_ms=timings.total_ms,
        prefill_tokens_per_second=timings.prefill_tokens_per_second,
        decode_tokens_per_second=timings.decode_tokens_per_second,
        error=ending.error.message if ending.error is not None else None,
    )
    if ending.is_suspect:
        logger.warning(
            "request ended: several agents were lost while running it, so it may be crashing them",
            extra=values,
        )
    else:
        logger.info("request ended", extra=values)


def log_move(moved: Moved) -> None:
    """Log that a request moves to another agent."""
    values = context(id=moved.request, agent=moved.origin.agent, reason=moved.reason)
    logger.info("request moves to another agent", extra=values)


def log_bad(bad: LogBad) -> None:
    """Log that an agent's connection is closed because of a bad message."""
    values = context(agent=bad.agent, reason=bad.reason)
    if bad.error is None:
        logger.warning(
            "an agent's connection is closed: it sent a message that cannot be true", extra=values
        )
    else:
        logger.error(
            "an agent's connection is closed: unexpected error while handling its message",
            extra=values,
            exc_info=bad.error,
        )


WATCH_INTERVAL = 0.2
"""The minimum seconds between two updates of one watcher."""


def new_request_id() -> RequestId:
    """Return a new unique id for a request."""
    return RequestId(secrets.token_hex(16))


def new_seed() -> int:
    """Return a seed that nobody can guess."""
    return secrets.randbits(32)


class FleetRuntime:
    """The running fleet of a balancer, used by the APIs, the management routes and agent sockets.

    `views` shows the present state of the fleet. `changes` notifies watchers.
    """

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
        self.views = FleetViews(fleet, clock)
        self.memory = fleet.admission.memory
        """The memory of waiting and running requests and queries, in bytes."""
        self.answers: Shares[Account] = Shares(fleet.limits.request_memory // ANSWERS_PART)
        """The bytes of answers that are unread, or that their readers keep until the end."""
        self._fleet = fleet
        self._clock = clock
        self._watch_interval = watch_interval
        self._seen = fleet.revision
        self._changed: asyncio.Event | None = None
        self._tracer = tracer
        self._draw_seed = draw_seed
        self._log_reads: Reads[LogRead] = Reads()
        self._fit_reads: Reads[FitRead] = Reads()
        self._num_fits = 0
        self._executor = DecisionExecutor(fleet, recorder, self._log_reads, self._fit_reads, clock)
        self._timer = DeadlineTimer(self.tick, clock)
        self._links = count(1)

    # ---- clients

    def open(
        self,
        request: GenerateRequest,
        id: RequestId | None = None,
        *,
        caller: Caller,
        tell_waiting: float | None = None,
        together: int = 1,
        kept_log_prob: int = 0,
    ) -> Stream:
        """Accept `request`, and return the stream of its events.

        If the request waits for longer than `tell_waiting` seconds, the stream has events about
        the wait. The caller opens `together` such requests, and the first call accepts or refuses
        all of them. The caller must have checked that agents can read the request
        (`api/common/request_checks.py`).

        Without an `id` from `new_request_id`, the request gets a new id. `Stream` explains
        `kept_log_prob`. Raises the refusal, such as `QueueFull` or `RateLimited`.
        """
        stream = Stream(
            new_request_id() if id is None else id,
            self._close,
            held=Holding(self.answers, caller.account),
            kept_log_prob=kept_log_prob,
        )
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
        """Accept `request` under the id of `sink`, and send its events to `sink`. See `open`."""
        self._executor.add_sink(sink)
        caller = self._traced(caller)
        decisions = self._fleet.request_arrived(
            sink.id,
            self.seeded(request),
            self._clock(),
            caller=caller,
            tell_waiting=tell_waiting,
            together=together,
        )
        self._accept(sink.id, decisions)

    def resume_request(
        self,
        sink: Sink,
        request: GenerateRequest,
        *,
        caller: Caller,
        delivered: Iterable[Event],
        engine: Engine | None,
        age: float,
    ) -> None:
        """Resume a request of an earlier run; see `Fleet.request_resumed`."""
        self._executor.add_sink(sink)
        decisions = self._fleet.request_resumed(
            sink.id,
            request,
            self._clock(),
            caller=self._traced(caller),
            delivered=delivered,
            engine=engine,
            age=age,
        )
        self._carry_out(decisions)

    def seeded(self, request: GenerateRequest) -> GenerateRequest:
        """Return the request with a seed, so that another agent can continue its answer.

        A request with greedy sampling is returned unchanged.
        """
        if request.seed is not None or request.temperature == 0:
            return request
        return with_seed(request, self._draw_seed())

    def ask(self, query_request: QueryRequest, *, caller: Caller) -> QueryHandle:
        """Accept a query. Raises the errors of `open`, or an error if no agent can answer."""
        handle = QueryHandle(new_request_id(), self._close)
        self._executor.add_query(handle)
        self._accept(
            handle.id,
            self._fleet.query_arrived(
                handle.id, query_request, self._clock(), caller=self._traced(caller)
            ),
        )
        return handle

    def _traced(self, caller: Caller) -> Caller:
        """Return `caller` with a new span for one request."""
        trace = self._tracer.begin(caller.trace_parent)
        return caller if trace is None else replace(caller, trace=trace)

    def _accept(self, id: RequestId, decisions: list[Decision]) -> None:
        """Carry out the decisions about a new request. Raises its refusal, if any."""
        refusals = [decision for decision in decisions if isinstance(decision, Refuse)]
        if refusals:
            self._executor.forget(id)
        self._carry_out(decisions)
        for refusal in refusals:
            raise refusal.error

    def cancel(self, ids: Iterable[RequestId]) -> int:
        """Cancel the requests `ids` at once. Returns how many of them had not ended."""
        live = [id for id in dict.fromkeys(ids) if id in self._fleet]
        self._carry_out(self._fleet.cancel(live, self._clock()))
        return len(live)

    def revoked(self, owner: str, error: RequestError) -> None:
        """End all requests of the key `owner` with `error`, because the key is no longer valid."""
        self._carry_out(self._fleet.revoked(owner, error, self._clock()))

    def _close(self, id: RequestId) -> None:
        self._carry_out(self._fleet.close(id, self._clock()))
        self._executor.forget(id)

    # ---- agents

    def agent_joined(
        self, peer: AgentConnection, hello: Hello, holder: Identity | None = None
    ) -> LinkId:
        """Take the hello of an agent with the key of `holder`, and return its new link.

        `peer` sends the answer, even if the agent is rejected.
        """
        link = LinkId(next(self._links))
        self._executor.add_peer(link, peer)
        self._carry_out(self._fleet.agent_joined(link, hello, self._clock(), holder))
        return link

    def agent_id(self, link: LinkId) -> AgentId | None:
        """Return the id of the agent on this link; `None` if it was rejected."""
        agent = self._fleet.state.registry.get(link)
        return None if agent is None else agent.hello.agent_id

    def agent_said(self, link: LinkId, message: FromAgent) -> None:
        """Handle a message that an agent sent after its hello."""
        self._carry_out(self._fleet.agent_said(link, message, self._clock()))

    def agent_broke(self, link: LinkId, reason: str) -> None:
        """Disconnect an agent that sent an invalid message or an impossible value."""
        self._carry_out(self._fleet.agent_broke(link, reason, self._clock()))

    def agent_heard(self, link: LinkId) -> None:
        """Count a part of a message as a sign of life of the agent."""
        self._carry_out(self._fleet.agent_heard(link, self._clock()))

    def agent_left(self, link: LinkId, *, hung_up: bool = False) -> None:
        """Remove an agent whose socket is closed.

        `hung_up`: the agent closed the socket in good order.
        """
        self._carry_out(self._fleet.agent_left(link, self._clock(), hung_up=hung_up))
        self._executor.forget_peer(link)

    def backlog(self) -> AgentBacklog:
        """Return the sum of all agents' backlogs, at a cost of the number of agents."""
        return self._executor.backlog()

    # ---- operators

    def desire(self, desired: DesiredState) -> None:
        """Make `desired` the desired state of the fleet."""
        self._carry_out(self._fleet.desire(desired, self._clock()))

    def restored(self, desired: DesiredState) -> None:
        """Restore the desired state from before the balancer's start."""
        self._carry_out(self._fleet.restored(desired, self._clock()))

    def cordon(self, agent: AgentId, within: float | None) -> None:
        """Give an agent no new work. Its running requests move after `within` seconds.

        If `within` is `None`, running requests end on this agent. Raises `NotFound`.
        """
        self._carry_out(self._fleet.cordon(agent, within, self._clock()))

    def resume(self, agent: AgentId) -> None:
        """Give a cordoned agent work again. Raises `NotFound`."""
        self._carry_out(self._fleet.resume(agent, self._clock()))

    def reload(self, agent: AgentId, drain_timeout: float) -> None:
        """Let an agent load its model again. Raises `NotFound`."""
        self._carry_out(self._fleet.reload(agent, drain_timeout, self._clock()))

    async def read_log(
        self, agent: AgentId, after: int, *, wait: float | None = None
    ) -> tuple[LogLine, ...]:
        """Return the latest log lines of an agent with numbers above `after`.

        If `wait` is given, wait at most `wait` seconds for such lines. Raises `NotFound`,
        `RateLimited`, or `AgentLost` if the agent leaves or does not answer.
        """
        if len(self._log_reads) >= MAX_LOG_READS:
            raise RateLimited(
                f"{MAX_LOG_READS} readers already wait for logs of agents; try again in a moment"
            )
        id = new_request_id()
        is_waiting = wait is not None
        with self._log_reads.expect(id) as read:
            asked = self._fleet.read_log(id, agent, after, self._clock(), wait=is_waiting)
            self._carry_out(asked)
            try:
                async with asyncio.timeout(LOG_PATIENCE if wait is None else wait):
                    return tuple((await read).lines)
            except TimeoutError:
                if is_waiting:
                    return ()
                raise AgentLost(f"the agent did not answer within {LOG_PATIENCE:g} s") from None
            finally:
                self._carry_out(self._fleet.stop_reading(id, self._clock()))

    async def read_fits(
        self, source: str, *, slots: NumSlots | None, context_size: AutoContext | None
    ) -> list[HostFit]:
        """Return the options that each host would choose for the model `source`, or why not.

        The call takes as long as the slowest host, at most `FIT_PATIENCE`. Raises `RateLimited`.
        """
        if self._num_fits >= MAX_FITS:
            raise RateLimited(
                f"{MAX_FITS} readers already wait for answers of agents; try again in a moment"
            )
        question = ReadFit(
            id=new_request_id(),
            source=source,
            slots=slots,
            context_size=context_size,
            http_hosts=self.views.limits.http_hosts,
        )
        hosts = self.views.view(max_requests=0).agents
        self._num_fits += 1
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._read_fit(each, question)) for each in hosts]
        finally:
            self._num_fits -= 1
        return [task.result() for task in asked]

    async def _read_fit(self, host: AgentView, question: ReadFit) -> HostFit:
        fit, issue = None, None
        try:
            async with asyncio.timeout(FIT_PATIENCE):
                read = await self._fit_read(host, question)
                fit, issue = read.fit, read.issue
        except TimeoutError:
            words = f"the agent did not answer within {FIT_PATIENCE:g} s"
            issue = Issue(code=AgentLost.code, message=words)
        except RequestError as error:
            issue = Issue(code=error.code, message=error.message)
        return HostFit(host=host.id, name=host.name, fit=fit, issue=issue)

    async def _fit_read(self, host: AgentView, question: ReadFit) -> FitRead:
        """Ask a host for the options that it would choose, again if its connection is lost.

        Raises `AgentLost`, `NotFound`, or `NotSupported` if the host is too old to answer.
        """
        if not host.facts.answers_fit:
            raise NotSupported(
                "the agent forwards to another server, or its version is too old for this question"
            )
        for _ in range(FIT_TRIES - 1):
            with suppress(AgentLost):  # another process of the host may have taken over
                return await self._fit_read_once(host.id, replace(question, id=new_request_id()))
        return await self._fit_read_once(host.id, replace(question, id=new_request_id()))

    async def _fit_read_once(self, host: AgentId, question: ReadFit) -> FitRead:
        """Ask a host once. Raises `AgentLost` with the link of the question, or `NotFound`."""
        with self._fit_reads.expect(question.id) as read:
            try:
                self._carry_out(self._fleet.read_fit(host, question, self._clock()))
                return await read
            finally:
                self._carry_out(self._fleet.stop_reading(question.id, self._clock()))

    @property
    def num_log_reads(self) -> int:
        """The number of readers that wait for agents' logs."""
        return len(self._log_reads)

    def restore_models(self, names: Iterable[str]) -> None:
        """Remember the models from before the balancer's start, so that requests for them wait."""
        self._fleet.restore_models(names, self._clock())

    def restore_cordons(self, cordons: Iterable[Cordon]) -> None:
        """Restore the cordons from before the balancer's start, oldest first."""
        self._fleet.restore_cordons(cordons)

    # ---- other balancers over the same store

    def lead(self, epoch: int) -> None:
        """Give agents orders from now on; `epoch` is larger than all earlier epochs."""
        self._carry_out(self._fleet.lead(epoch, self._clock()))

    def follow(self) -> None:
        """Stop giving orders to agents, because this balancer does not lead."""
        self._fleet.follow()

    def others(self, num_live: int, waiting: Mapping[str, tuple[int, float]]) -> None:
        """Take the number of live balancers, and the requests that wait in other balancers.

        For each model, `waiting` has the number of these requests and the waiting seconds of the
        oldest.
        """
        now = self._clock()
        demands = {name: Demand(num, now - age) for name, (num, age) in waiting.items()}
        self._carry_out(self._fleet.others(num_live, demands, now))

    def retry_agent(self, agent: AgentId) -> None:
        """Let an agent try again to load models, if the agent is connected."""
        self._carry_out(self._fleet.retry_agent(agent, self._clock()))

    def apply_cordons(self, shared: Collection[SharedCordon]) -> None:
        """Replace all cordons by `shared`, the cordons of all balancers' operators."""
        self._carry_out(self._fleet.apply_cordons(shared, self._clock()))

    # ---- time, and the end of it

    def tick(self) -> None:
        """Do all work whose time has come. The timer calls this method."""
        self._carry_out(self._fleet.tick(self._clock()))

    async def run(self) -> None:
        """Act on deadlines, until cancelled."""
        await self._timer.run(self._fleet.next_deadline())

    async def drain(self, within: float) -> None:
        """Refuse new requests, and wait at most `within` seconds until all requests have ended.

        Requests that still run then end with `shutting_down`. `run` must be running.
        """
        now = self._clock()
        self._carry_out(self._fleet.drain(now, now + within))
        while not self._fleet.is_idle:
            await self._next_change().wait()

    def goodbye(self) -> None:
        """Send `Goodbye` to all agents, close their sockets, and reject further agents."""
        self._carry_out(self._fleet.goodbye(self._clock()))

    # ---- watching

    async def changes(self) -> AsyncIterator[None]:
        """Yield now and after each change, at most once in `watch_interval` seconds."""
        while True:
            changed = self._next_change()
            yield
            await asyncio.sleep(self._watch_interval)
            await changed.wait()

    def _next_change(self) -> asyncio.Event:
        """Return an event that is set at the next change."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed

    def _notify(self) -> None:
        """Wake the watchers if the fleet has changed since the last call."""
        if self._seen != self._fleet.revision:
            self._seen = self._fleet.revision
            if self._changed is not None:
                self._changed.set()
                self._changed = None

    # ---- inside

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        if self._executor.carry_out(decisions):
            self._executor.carry_out(self._fleet.forgotten(*self._executor.waited_for))
        self._timer.arm(self._fleet.next_deadline())
        self._notify()
