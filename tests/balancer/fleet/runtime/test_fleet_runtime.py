"""The shell: clients, agents and time reach the core; refusals are raised, draining waits."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import LinkId, LogBad
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.runtime import fleet_runtime
from arriero.balancer.fleet.runtime.fleet_runtime import (
    MAX_LOG_READS,
    DeadlineTimer,
    FleetRuntime,
    Reads,
    log_bad,
)
from arriero.balancer.fleet.runtime.outbox import AgentBacklog
from arriero.shared.errors import AgentLost, NotFound, QueueFull, RateLimited, ShuttingDown
from arriero.shared.framing.heartbeat import SECOND_LOOK
from arriero.shared.inference import AgentId, Done, Event, Failed, Rates, RequestId, Token, Usage
from arriero.shared.messages import Cancel, Goodbye, Heartbeat, LogRead, ReadLog, Start, Welcome
from arriero.shared.reports.log_lines import LogLine
from arriero.shared.tracing.trace_context import TraceContext
from arriero.shared.tracing.tracer import QueueTracer
from tests.balancer.fleet.builders import ended, hello, output, piece, request
from tests.balancer.fleet.recording import RecordingPeer, RecordingRecorder
from tests.balancer.fleet.runtime.query_dispatcher import SEEDED, QueryDispatcher
from tests.shared.tracing.fakes import Kept
from tests.waiting import HANGS, GivenTime, given_time


async def test_the_agent_s_part_of_a_request_belongs_to_its_trace() -> None:
    recorder, tracer = RecordingRecorder(), QueueTracer(Kept().queue, lambda parent, id: True)
    runtime = FleetRuntime(Fleet(Limits()), recorder=recorder, tracer=tracer)
    peer = RecordingPeer()
    runtime.agent_joined(peer, hello("new", slots=1))
    client = TraceContext(7, 8, is_sampled=True)
    runtime.open(request(), caller=Caller(trace_parent=client))
    [start] = peer.sent[1:]
    assert isinstance(start, Start)
    assert start.traceparent is not None and start.traceparent.startswith(f"00-{7:032x}-")
    assert start.traceparent != client.traceparent, "the request has a span of its own"
    runtime.cancel([start.id])
    runtime.agent_said(LinkId(1), output(ended(start.id)))
    [ending] = recorder.endings
    assert ending.caller.traceparent == start.traceparent
    assert ending.caller.trace_parent == client


async def test_ids_are_never_the_same() -> None:
    dispatcher = QueryDispatcher()
    streams = [dispatcher.runtime.open(request(), caller=ANONYMOUS) for _ in range(10)]
    assert len({stream.id for stream in streams}) == 10


async def test_a_refusal_is_raised_and_recorded() -> None:
    dispatcher = QueryDispatcher(Limits(max_buffered_requests=0))
    with pytest.raises(QueueFull):
        dispatcher.runtime.open(request(), caller=ANONYMOUS)
    assert [ending.code for ending in dispatcher.recorder.endings] == ["queue_full"]
    assert dispatcher.runtime.views.view().requests == ()


async def test_a_reader_that_goes_frees_the_slot() -> None:
    dispatcher = QueryDispatcher()
    _, peer = dispatcher.join(slots=1)
    with dispatcher.runtime.open(request(), caller=ANONYMOUS) as first:
        second = dispatcher.runtime.open(request(), caller=ANONYMOUS)
    assert peer.sent[2:] == [Cancel(id=first.id), Start(id=second.id, request=SEEDED)]
    assert dispatcher.runtime.views.totals().slots_busy == 1


async def test_a_reader_that_goes_at_its_deadline_is_not_delivered_to() -> None:
    dispatcher = QueryDispatcher(Limits(buffered_request_timeout=5.0))
    stream = dispatcher.runtime.open(request(), caller=ANONYMOUS)
    dispatcher.clock.now += 5.0
    stream.close()
    assert [ending.code for ending in dispatcher.recorder.endings] == ["queue_timeout"]


async def test_cancel_says_how_many_had_not_ended() -> None:
    dispatcher = QueryDispatcher()
    streams = [dispatcher.runtime.open(request(), caller=ANONYMOUS) for _ in range(2)]
    ids = [stream.id for stream in streams]
    assert dispatcher.runtime.cancel([*ids, *ids, "unknown"]) == 2
    assert dispatcher.runtime.cancel(ids) == 0
    [event] = [event async for event in streams[0]]
    assert isinstance(event, Failed)
    assert event.error.code == "cancelled"


async def test_the_timer_keeps_deadlines() -> None:
    limits = Limits(buffered_request_timeout=0.02)
    runtime = FleetRuntime(Fleet(limits), recorder=RecordingRecorder())
    timer = asyncio.create_task(runtime.run())
    await asyncio.sleep(0)
    events: list[Event] = [event async for event in runtime.open(request(), caller=ANONYMOUS)]
    assert [event.error.code for event in events if isinstance(event, Failed)] == ["queue_timeout"]
    timer.cancel()
    with suppress(asyncio.CancelledError):
        await timer


async def test_the_timer_is_brought_forward_for_a_nearer_deadline() -> None:
    limits = Limits(buffered_request_timeout=60.0, heartbeat_interval=0.02)
    runtime = FleetRuntime(Fleet(limits), recorder=RecordingRecorder())
    timer = asyncio.create_task(runtime.run())
    await asyncio.sleep(0)
    runtime.open(request("none"), caller=ANONYMOUS)
    peer = SignallingPeer()
    runtime.agent_joined(peer, hello())
    await peer.heartbeat.wait()
    timer.cancel()
    with suppress(asyncio.CancelledError):
        await timer


class SignallingPeer(RecordingPeer):
    """Says when a heartbeat came."""

    def __init__(self) -> None:
        super().__init__()
        self.heartbeat = asyncio.Event()

    def send(self, message: object) -> None:
        if isinstance(message, Heartbeat):
            self.heartbeat.set()


async def test_draining_returns_when_everything_has_ended() -> None:
    dispatcher = QueryDispatcher()
    link, _ = dispatcher.join()
    stream = dispatcher.runtime.open(request(), caller=ANONYMOUS)
    drained = asyncio.create_task(dispatcher.runtime.drain(60.0))
    await asyncio.sleep(0)
    with pytest.raises(ShuttingDown):
        dispatcher.runtime.open(request(), caller=ANONYMOUS)
    assert not drained.done()
    dispatcher.runtime.agent_said(link, output(ended(stream.id)))
    await drained


async def test_draining_an_idle_fleet_returns_at_once() -> None:
    await QueryDispatcher().runtime.drain(60.0)


async def test_draining_ends_at_its_deadline() -> None:
    dispatcher = QueryDispatcher()
    dispatcher.join()
    stream = dispatcher.runtime.open(request(), caller=ANONYMOUS)
    drained = asyncio.create_task(dispatcher.runtime.drain(60.0))
    await asyncio.sleep(0)
    dispatcher.clock.now += 60.0
    dispatcher.runtime.tick()
    await drained
    [event] = [event async for event in stream]
    assert isinstance(event, Failed)
    assert event.error.code == "shutting_down"


async def test_goodbye_reaches_every_agent_and_newcomers_are_turned_away() -> None:
    dispatcher = QueryDispatcher()
    _, peer = dispatcher.join()
    dispatcher.runtime.goodbye()
    assert isinstance(peer.sent[0], Welcome)
    assert peer.sent[1:] == [Goodbye()]
    assert peer.reason == "the balancer is shutting down"
    _, late = dispatcher.join("a2")
    assert [message.type for message in late.sent] == ["reject"]
    assert late.reason is not None


async def test_a_request_has_a_seed_unless_it_needs_none() -> None:
    dispatcher = QueryDispatcher()
    _, peer = dispatcher.join(slots=4)
    greedy, own = replace(request(), temperature=0.0), replace(request(), seed=7)
    for each in (request(), greedy, own):
        dispatcher.runtime.open(each, caller=ANONYMOUS)
    sent = [each.request for each in peer.sent if isinstance(each, Start)]
    assert sent == [SEEDED, greedy, own]


async def test_watchers_look_at_once_and_then_after_each_change() -> None:
    dispatcher = QueryDispatcher()
    async with aclosing(dispatcher.runtime.changes()) as changes:
        await anext(changes)
        changed = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not changed.done(), "nothing has changed"
        dispatcher.join()
        await asyncio.wait_for(changed, HANGS)
        assert dispatcher.runtime.views.totals().num_agents == 1


async def test_a_change_while_the_watcher_is_away_is_not_missed() -> None:
    dispatcher = QueryDispatcher()
    async with aclosing(dispatcher.runtime.changes()) as changes:
        await anext(changes)
        dispatcher.join("a1")
        await asyncio.wait_for(anext(changes), HANGS)


async def test_what_changed_since_a_revision() -> None:
    dispatcher = QueryDispatcher()
    revision = dispatcher.runtime.views.revision
    dispatcher.join("a1")
    delta = dispatcher.runtime.views.changes_since(revision)
    assert delta is not None
    assert [agent.id for agent in delta.agents] == ["a1"]
    assert delta.revision == dispatcher.runtime.views.revision > revision


async def test_one_agent_and_the_oldest_requests() -> None:
    dispatcher = QueryDispatcher()
    assert dispatcher.runtime.views.agent(AgentId("a1")) is None
    dispatcher.join("a1")
    agent = dispatcher.runtime.views.agent(AgentId("a1"))
    assert agent is not None and agent.id == "a1"
    streams = [dispatcher.runtime.open(request(), caller=ANONYMOUS) for _ in range(3)]
    assert [each.id for each in dispatcher.runtime.views.requests()] == [
        each.id for each in streams
    ]
    view = dispatcher.runtime.views.view(max_requests=2)
    assert [each.id for each in view.requests] == [each.id for each in streams[:2]]
    assert view.num_requests == 3


async def test_an_answer_goes_from_the_agent_to_the_stream_and_the_recorder() -> None:
    dispatcher = QueryDispatcher()
    link, peer = dispatcher.join()
    with dispatcher.runtime.open(request(), caller=ANONYMOUS) as stream:
        assert peer.sent[1:] == [Start(id=stream.id, request=SEEDED)]
        dispatcher.clock.now += 2.0
        dispatcher.runtime.agent_said(link, output(piece(stream.id, "Once", num_tokens=2)))
        dispatcher.clock.now += 0.5
        dispatcher.runtime.agent_said(link, output(piece(stream.id, " upon"), ended(stream.id)))
        events = [event async for event in stream]
    assert events[0] == Token("Once upon", "content", (0, 1, 0))
    assert isinstance(events[-1], Done)
    assert (dispatcher.recorder.first_tokens, dispatcher.recorder.gaps) == ([2.0], [0.5])
    assert dispatcher.recorder.counts == [2, 1]
    assert set(dispatcher.recorder.origins) == {Origin("host-a1", "llama")}
    [ending] = dispatcher.recorder.endings
    assert (ending.code, ending.agent, ending.model) == ("stop", "host-a1", "llama")


async def test_an_agent_that_is_dismissed_is_disconnected_and_forgotten() -> None:
    dispatcher = QueryDispatcher(Limits(heartbeat_timeout=5.0))
    link, peer = dispatcher.join()
    for seconds in (5.0, SECOND_LOOK):
        dispatcher.clock.now += seconds
        dispatcher.runtime.tick()
    assert peer.reason == "silent for 5 s"
    dispatcher.runtime.agent_said(link, Heartbeat())
    dispatcher.runtime.agent_left(link)
    assert dispatcher.runtime.views.totals().num_agents == 0


async def test_an_agent_whose_socket_closes_is_not_disconnected_again() -> None:
    dispatcher = QueryDispatcher()
    link, peer = dispatcher.join()
    dispatcher.runtime.agent_left(link)
    assert peer.reason is None
    assert dispatcher.runtime.views.view().agents == ()


async def test_what_waits_for_agents_is_added_up() -> None:
    dispatcher = QueryDispatcher()
    assert dispatcher.runtime.backlog() == AgentBacklog()
    dispatcher.join("a1")
    link, _ = dispatcher.join("a2")
    assert dispatcher.runtime.backlog() == AgentBacklog(num_messages=2, num_bytes=20)
    dispatcher.runtime.agent_left(link)
    assert dispatcher.runtime.backlog() == AgentBacklog(num_messages=1, num_bytes=10)


async def test_each_ended_request_is_one_line_with_its_figures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="arriero.balancer.fleet")
    dispatcher = QueryDispatcher()
    link, _ = dispatcher.join()
    caller = Caller(address="192.0.2.7", user_agent="curl/8.0")
    stream = dispatcher.runtime.open(request(), caller=caller)
    dispatcher.clock.now += 1.5
    rates = Rates(prefill_tokens_per_second=100.0, decode_tokens_per_second=20.0)
    usage = Usage(prompt_tokens=3, cached_tokens=1, completion_tokens=2)
    end = replace(ended(stream.id), usage=usage, rates=rates)
    dispatcher.runtime.agent_said(link, output(piece(stream.id), end))
    [record] = caplog.records
    assert record.getMessage() == "request ended"
    assert record.__dict__["context"] == {
        "id": stream.id,
        "model": "llama",
        "agent": "host-a1",
        "caller": "anonymous",
        "address": "192.0.2.7",
        "user_agent": "curl/8.0",
        "code": "stop",
        "prompt_tokens": 3,
        "cached_tokens": 1,
        "completion_tokens": 2,
        "queue_ms": 0.0,
        "first_token_ms": 1500.0,
        "total_ms": 1500.0,
        "prefill_tokens_per_second": 100.0,
        "decode_tokens_per_second": 20.0,
    }


async def test_a_move_is_recorded_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = QueryDispatcher()
    caplog.set_level(logging.INFO)
    link, _ = dispatcher.join()
    stream = dispatcher.runtime.open(request(), caller=ANONYMOUS)
    dispatcher.runtime.agent_left(link)
    assert dispatcher.recorder.moves == [("lost", Origin("host-a1", "llama"))]
    link, _ = dispatcher.join("a2")
    dispatcher.runtime.agent_left(link)
    assert [event async for event in stream][-1] == Failed(
        AgentLost(
            "2 agents in a row were lost while they ran only this request, so it is the likely "
            "cause"
        )
    )
    move, end = [record for record in caplog.records if "request" in record.message]
    assert (move.levelname, end.levelname) == ("INFO", "WARNING")
    assert stream.id in str(vars(move)) and stream.id in str(vars(end))


async def test_an_agent_that_says_what_cannot_be_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatcher = QueryDispatcher()
    link, _ = dispatcher.join()
    caplog.set_level(logging.WARNING, logger="arriero.balancer.fleet")
    dispatcher.runtime.agent_broke(link, "why")
    [record] = caplog.records
    assert (
        record.getMessage()
        == "an agent's connection is closed: it sent a message that cannot be true"
    )
    assert record.__dict__["context"] == {"agent": "host-a1", "reason": "why"}
    assert record.exc_info is None


def test_a_fault_of_ours_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log_bad(LogBad("a", "why", ZeroDivisionError("x"), is_ours=True))
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError


SOON = 1.0
LATER = 60.0


class Fired:
    """What the timer calls, by the event loop's own clock."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self) -> None:
        self.times.append(now())


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def time() -> AsyncIterator[GivenTime]:
    async with given_time() as time:
        yield time


@asynccontextmanager
async def running(timer: DeadlineTimer, deadline: float | None) -> AsyncIterator[None]:
    task = asyncio.create_task(timer.run(deadline))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_it_fires_when_the_deadline_has_come_and_not_before(time: GivenTime) -> None:
    fired, deadline = Fired(), now() + SOON
    async with running(DeadlineTimer(fired, now), deadline):
        await time.passes(0.9 * SOON)
        assert fired.times == []
        await time.passes(0.1 * SOON)
        await time.passes(LATER)
    assert fired.times == [pytest.approx(deadline)]


async def test_a_nearer_deadline_brings_it_forward(time: GivenTime) -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() + LATER):
        timer.arm(now() + SOON)
        await time.passes(SOON)
    assert len(fired.times) == 1


async def test_a_later_deadline_and_none_leave_it_as_it_is(time: GivenTime) -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() + SOON):
        timer.arm(now() + LATER)
        timer.arm(None)
        await time.passes(SOON)
    assert len(fired.times) == 1


async def test_after_it_has_fired_it_is_armed_anew(time: GivenTime) -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    async with running(timer, now() - 1.0):
        await time.passes(SOON)
        assert len(fired.times) == 1
        timer.arm(now() + SOON)
        await time.passes(SOON)
    assert len(fired.times) == 2


async def test_nothing_fires_before_it_runs_or_after(time: GivenTime) -> None:
    fired = Fired()
    timer = DeadlineTimer(fired, now)
    timer.arm(now() - 1.0)
    async with running(timer, now() + SOON):
        pass
    timer.arm(now() - 1.0)
    await time.passes(LATER)
    assert fired.times == []


LINE = LogLine(number=7, at=1.0, level="warning", text="hot")


async def test_what_is_read_reaches_who_asked_and_nobody_else() -> None:
    reads: Reads[LogRead] = Reads()
    with reads.expect(RequestId("a")) as mine, reads.expect(RequestId("b")) as other:
        read = LogRead(id=RequestId("a"), lines=(LINE,))
        for _ in range(2):  # an agent that answers twice
            reads.read(read)
        reads.read(LogRead(id=RequestId("nobody"), lines=(LINE,)))
        assert await mine == read
        assert not other.done()
    assert len(reads) == 0


async def test_readers_of_logs_are_bounded() -> None:
    dispatcher = QueryDispatcher()
    dispatcher.join("a1")
    reading = [
        asyncio.create_task(dispatcher.runtime.read_log(AgentId("a1"), 5))
        for _ in range(MAX_LOG_READS)
    ]
    await asyncio.sleep(0)
    with pytest.raises(RateLimited):
        await dispatcher.runtime.read_log(AgentId("a1"), 5)
    assert dispatcher.runtime.num_log_reads == MAX_LOG_READS
    for each in reading:
        each.cancel()


async def test_an_agent_is_asked() -> None:
    dispatcher = QueryDispatcher()
    link, peer = dispatcher.join("a1")
    reading = asyncio.create_task(dispatcher.runtime.read_log(AgentId("a1"), 5))
    await asyncio.sleep(0)
    asked = peer.sent[-1]
    assert isinstance(asked, ReadLog)
    assert asked.after == 5
    assert dispatcher.runtime.num_log_reads == 1
    dispatcher.runtime.agent_said(link, LogRead(id=asked.id, lines=(LINE,)))
    assert await reading == (LINE,)
    assert dispatcher.runtime.num_log_reads == 0


async def test_an_agent_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_runtime, "LOG_PATIENCE", 0.01)
    dispatcher = QueryDispatcher()
    dispatcher.join("a1")
    with pytest.raises(AgentLost, match="did not answer"):
        await dispatcher.runtime.read_log(AgentId("a1"), 0)
    assert dispatcher.runtime.num_log_reads == 0


async def test_an_agent_that_is_not_here() -> None:
    with pytest.raises(NotFound):
        await QueryDispatcher().runtime.read_log(AgentId("nobody"), 0)
