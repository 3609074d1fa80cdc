"""The shell around the fleet's core: feeds it events and time, carries out every decision.

All of it runs on one event loop, and nothing but `drain`, `run`, `changes`, `read_log` and
`read_fits` waits, so every event is carried out whole before the next.
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
from ..queries.query_handle import QueryHandle
from ..recorder import Ending, Recorder
from ..requests.eligibility import Engine
from ..shares import Holding, Shares
from ..view import AgentView, Cordon, SharedCordon
from .outbox import AgentBacklog, AgentConnection
from .stream import Sink, Stream

ANSWERS_PART = 4
"""Answers that wait to be read, or to be complete, may take this part of the requests' memory."""

MAX_LOG_READS = 64
"""Operators who may wait for the log of an agent at once."""

LOG_PATIENCE = 5.0
"""Seconds that an agent has to send lines of its log."""

MAX_FITS = 4
"""Operators who may wait at once for what hosts would choose for a model."""

FIT_PATIENCE = 60.0
"""Seconds that a host has to say what it would choose: longer than its own deadline."""

FIT_TRIES = 3
"""Attempts to ask, if links are lost meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFit:
    """The settings that a host would choose for a model, or why they are unknown."""

    host: AgentId
    name: str
    fit: ModelFit | None = None
    issue: Issue | None = None


_Sent = TypeVar("_Sent", LogRead, FitRead)


class Reads(Generic[_Sent]):
    """The readers that wait for what an agent was asked to send, by the id of what they asked.

    Each waits until that came or it has gone.
    """

    def __init__(self) -> None:
        self._waiting: dict[RequestId, asyncio.Future[_Sent]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def expect(self, id: RequestId) -> Iterator[asyncio.Future[_Sent]]:
        """Expect a reply for `id` inside the block."""
        future = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            del self._waiting[id]

    def lost(self, ids: Iterable[RequestId]) -> None:
        """The agent of these has gone."""
        for id in ids:
            if (future := self._waiting.get(id)) is not None and not future.done():
                future.set_exception(AgentLost("the agent has gone"))

    def read(self, message: _Sent) -> None:
        """An agent sent this; ignored if no reader waits for it any more."""
        future = self._waiting.get(message.id)
        if future is not None and not future.done():
            future.set_result(message)


_GRAIN = 0.001
"""Event loops round to milliseconds; a shorter timer would fire early, again and again."""


class DeadlineTimer:
    """Calls `fire` when the deadline has come that it was armed for.

    While it runs, the event loop holds at most one of its handles.
    """

    def __init__(self, fire: Callable[[], None], clock: Callable[[], float]) -> None:
        self._fire = fire
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    async def run(self, deadline: float | None) -> None:
        """Keep `deadline` and those that `arm` gets, until cancelled."""
        self._loop = asyncio.get_running_loop()
        self.arm(deadline)
        try:
            await asyncio.Event().wait()
        finally:
            self._loop = None
            self._disarm()

    def arm(self, deadline: float | None) -> None:
        """See to it that it fires no later than `deadline`; for nothing while it does not run."""
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
    """Carries out what the core decides: it knows where events go, and each link's socket.

    Invariant: a sink or a query handle is here exactly as long as its request has not ended; a peer
    exactly as long as the core knows its link. Nothing waits, so decisions are carried out in
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
        """The events of the request of its id go to `sink`."""
        self._sinks[sink.id] = sink

    def add_query(self, handle: QueryHandle) -> None:
        """The outcome of the query of its id goes to `handle`."""
        self._query_handles[handle.id] = handle

    def add_peer(self, link: LinkId, peer: AgentConnection) -> None:
        """Send messages for `link` to `peer`."""
        self._peers[link] = peer

    def forget(self, id: RequestId) -> None:
        """A request or query that was refused, or whose reader has gone."""
        self._sinks.pop(id, None)
        self._query_handles.pop(id, None)

    def forget_peer(self, link: LinkId) -> None:
        """An agent whose socket is closed."""
        self._peers.pop(link, None)

    @property
    def waited_for(self) -> tuple[list[RequestId], list[RequestId]]:
        """The requests, and the queries, whose clients wait. Costs their number."""
        return list(self._sinks), list(self._query_handles)

    def backlog(self) -> AgentBacklog:
        """Messages that wait for agents. Costs in proportion to the number of agents."""
        waiting = [peer.backlog() for peer in self._peers.values()]
        return AgentBacklog(
            sum(each.num_messages for each in waiting), sum(each.num_bytes for each in waiting)
        )

    def carry_out(self, decisions: Iterable[Decision]) -> bool:
        """All of them, in order, except that `Refuse` is for who asked.

        Whether a fault of ours was met.
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
    """A request has ended, with its figures."""
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
        logger.warning("request ended: it may be what ends its agents", extra=values)
    else:
        logger.info("request ended", extra=values)


def log_move(moved: Moved) -> None:
    """A request leaves its agent and goes to another."""
    values = context(id=moved.request, agent=moved.origin.agent, reason=moved.reason)
    logger.info("request moves to another agent", extra=values)


def log_bad(bad: LogBad) -> None:
    """An agent's connection ends for what came over it."""
    values = context(agent=bad.agent, reason=bad.reason)
    if bad.error is None:
        logger.warning("bad message from an agent: its connection ends", extra=values)
    else:
        logger.error(
            "a message of an agent could not be handled: its connection ends",
            extra=values,
            exc_info=bad.error,
        )


WATCH_INTERVAL = 0.2
"""Shortest time between two looks at the fleet of one watcher, in seconds."""


def new_request_id() -> RequestId:
    """One that no other request has."""
    return RequestId(secrets.token_hex(16))


def new_seed() -> int:
    """A seed that no one can guess."""
    return secrets.randbits(32)


class FleetRuntime:
    """One for each balancer; APIs, management and agent sockets all use it.

    `views` are of the fleet as of now; `changes` wakes those that watch it.
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
        """Bytes of the requests and queries that wait or run."""
        self.answers: Shares[Account] = Shares(fleet.limits.request_memory // ANSWERS_PART)
        """Bytes of answers that wait for their readers, or that readers keep."""
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
        """Accept `request`; its stream tells about waits longer than `tell_waiting` seconds.

        It is the first of `together` requests like it, all of which will be opened, or none. See
        `Stream` for `kept_log_prob`.

        Raises why it is refused, such as `QueueFull` or `RateLimited`.

        The APIs check before that agents can read it (`api/common/readable`). An `id` is
        one of `new_request_id`, for callers that have to know it even if the request is refused.
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
        """Accept `request`, whose events go to `sink`, under its id. See `open`."""
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
        """Go on with what another run of the balancer accepted; see `Fleet.request_resumed`."""
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
        """With a seed, so that another agent goes on with the same one; greedy ones need none."""
        if request.seed is not None or request.temperature == 0:
            return request
        return with_seed(request, self._draw_seed())

    def ask(self, query_request: QueryRequest, *, caller: Caller) -> QueryHandle:
        """Accept `query_request`. Raises as `open` does, and for what no agent here can answer."""
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
        """`caller` with a span for one request of theirs."""
        trace = self._tracer.begin(caller.trace_parent)
        return caller if trace is None else replace(caller, trace=trace)

    def _accept(self, id: RequestId, decisions: list[Decision]) -> None:
        """Carry out what follows from a newcomer; raise what it was refused with."""
        refusals = [decision for decision in decisions if isinstance(decision, Refuse)]
        if refusals:
            self._executor.forget(id)
        self._carry_out(decisions)
        for refusal in refusals:
            raise refusal.error

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
        self._executor.forget(id)

    # ---- agents

    def agent_joined(
        self, peer: AgentConnection, hello: Hello, holder: Identity | None = None
    ) -> LinkId:
        """An agent said hello. It is answered through `peer`, also if it is not let in.

        `holder` is that of the key that it came with.
        """
        link = LinkId(next(self._links))
        self._executor.add_peer(link, peer)
        self._carry_out(self._fleet.agent_joined(link, hello, self._clock(), holder))
        return link

    def agent_id(self, link: LinkId) -> AgentId | None:
        """The id under which others know the agent on this link, unless it was not let in."""
        agent = self._fleet.state.registry.get(link)
        return None if agent is None else agent.hello.agent_id

    def agent_said(self, link: LinkId, message: FromAgent) -> None:
        """An agent sent something else."""
        self._carry_out(self._fleet.agent_said(link, message, self._clock()))

    def agent_broke(self, link: LinkId, reason: str) -> None:
        """An agent sent what is no message, or one with a value that cannot be."""
        self._carry_out(self._fleet.agent_broke(link, reason, self._clock()))

    def agent_heard(self, link: LinkId) -> None:
        """A part of a message came from an agent."""
        self._carry_out(self._fleet.agent_heard(link, self._clock()))

    def agent_left(self, link: LinkId, *, hung_up: bool = False) -> None:
        """An agent's socket is closed, from whichever side; `hung_up`: by it, in good order."""
        self._carry_out(self._fleet.agent_left(link, self._clock(), hung_up=hung_up))
        self._executor.forget_peer(link)

    def backlog(self) -> AgentBacklog:
        """Messages that wait for agents. Costs in proportion to the number of agents."""
        return self._executor.backlog()

    # ---- operators

    def desire(self, desired: DesiredState) -> None:
        """The fleet should serve this from now on."""
        self._carry_out(self._fleet.desire(desired, self._clock()))

    def restored(self, desired: DesiredState) -> None:
        """The fleet should serve this, and did so before the balancer started."""
        self._carry_out(self._fleet.restored(desired, self._clock()))

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

    async def read_log(
        self, agent: AgentId, after: int, *, wait: float | None = None
    ) -> tuple[LogLine, ...]:
        """The last lines of an agent's log, of those with numbers above `after`.

        With `wait` it waits for so many seconds until there are some. Raises `NotFound`,
        `RateLimited`, or `AgentLost` if the agent goes or does not answer.
        """
        if len(self._log_reads) >= MAX_LOG_READS:
            raise RateLimited(f"{MAX_LOG_READS} readers wait for agents' logs already")
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
        """The settings that each host would choose for the model of `source`, or a reason.

        Takes as long as the slowest of them, and `FIT_PATIENCE` at most. Raises `RateLimited`.
        """
        if self._num_fits >= MAX_FITS:
            raise RateLimited(f"{MAX_FITS} readers wait for what hosts would choose already")
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
            words = f"it did not answer within {FIT_PATIENCE:g} s"
            issue = Issue(code=AgentLost.code, message=words)
        except RequestError as error:
            issue = Issue(code=error.code, message=error.message)
        return HostFit(host=host.id, name=host.name, fit=fit, issue=issue)

    async def _fit_read(self, host: AgentView, question: ReadFit) -> FitRead:
        """Raises `AgentLost`, `NotFound`, or `NotSupported` if it does not say such a thing."""
        if not host.facts.answers_fit:
            raise NotSupported(
                "it forwards to another server, or its version does not say what it would choose"
            )
        for _ in range(FIT_TRIES - 1):
            with suppress(AgentLost):  # another process of the host may have taken over
                return await self._fit_read_once(host.id, replace(question, id=new_request_id()))
        return await self._fit_read_once(host.id, replace(question, id=new_request_id()))

    async def _fit_read_once(self, host: AgentId, question: ReadFit) -> FitRead:
        """Raises `AgentLost` with the link over which it is asked, or `NotFound`."""
        with self._fit_reads.expect(question.id) as read:
            try:
                self._carry_out(self._fleet.read_fit(host, question, self._clock()))
                return await read
            finally:
                self._carry_out(self._fleet.stop_reading(question.id, self._clock()))

    @property
    def num_log_reads(self) -> int:
        """Readers who wait for agents' logs."""
        return len(self._log_reads)

    def restore_models(self, names: Iterable[str]) -> None:
        """These were served before the balancer started: requests for them wait for a while."""
        self._fleet.restore_models(names, self._clock())

    def restore_cordons(self, cordons: Iterable[Cordon]) -> None:
        """These were there before the balancer started, oldest first."""
        self._fleet.restore_cordons(cordons)

    # ---- other balancers over the same store

    def lead(self, epoch: int) -> None:
        """Give agents their orders from now on; `epoch` is larger than all before it."""
        self._carry_out(self._fleet.lead(epoch, self._clock()))

    def follow(self) -> None:
        """Give no orders: another balancer does, or none."""
        self._fleet.follow()

    def others(self, num_live: int, waiting: Mapping[str, tuple[int, float]]) -> None:
        """The number of live balancers, and the models that requests of others wait for.

        By model: the number of requests, and the seconds of the oldest.
        """
        now = self._clock()
        demands = {name: Demand(num, now - age) for name, (num, age) in waiting.items()}
        self._carry_out(self._fleet.others(num_live, demands, now))

    def retry_agent(self, agent: AgentId) -> None:
        """Let an agent try again what it failed to load, if it is here."""
        self._carry_out(self._fleet.retry_agent(agent, self._clock()))

    def apply_cordons(self, shared: Collection[SharedCordon]) -> None:
        """These are all that operators want, at whichever balancer they said so."""
        self._carry_out(self._fleet.apply_cordons(shared, self._clock()))

    # ---- time, and the end of it

    def tick(self) -> None:
        """Carry out whatever is due; the timer calls it."""
        self._carry_out(self._fleet.tick(self._clock()))

    async def run(self) -> None:
        """Keep the deadlines, until cancelled."""
        await self._timer.run(self._fleet.next_deadline())

    async def drain(self, within: float) -> None:
        """Refuse what is new; return when every request has ended, after `within` seconds at most.

        What is left by then ends with `shutting_down`. Needs `run` to be running.
        """
        now = self._clock()
        self._carry_out(self._fleet.drain(now, now + within))
        while not self._fleet.is_idle:
            await self._next_change().wait()

    def goodbye(self) -> None:
        """Say `Goodbye` to every agent, close their sockets and let no more in."""
        self._carry_out(self._fleet.goodbye(self._clock()))

    # ---- watching

    async def changes(self) -> AsyncIterator[None]:
        """Yields at once, then after changes, at most once in a `watch_interval`."""
        while True:
            changed = self._next_change()
            yield
            await asyncio.sleep(self._watch_interval)
            await changed.wait()

    def _next_change(self) -> asyncio.Event:
        """An event that is set at the next change."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed

    def _notify(self) -> None:
        """Wake those that wait, if something changed since this was last called."""
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
