"""The shell: clients, agents and time reach the core; refusals are raised, draining waits."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.shared.errors import QueueFull, ShuttingDown
from arriero.shared.inference import Event, Failed
from arriero.shared.messages import Cancel, Goodbye, Heartbeat, Start, Welcome
from arriero.shared.tracing.trace_context import TraceContext
from arriero.shared.tracing.tracer import QueueTracer
from tests.balancer.fleet.builders import ended, hello, output, request
from tests.balancer.fleet.recording import RecordingPeer, RecordingRecorder
from tests.balancer.fleet.runtime.query_dispatcher import SEEDED, QueryDispatcher
from tests.shared.tracing.fakes import Kept


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
    assert dispatcher.runtime.view().requests == ()


async def test_a_reader_that_goes_frees_the_slot() -> None:
    dispatcher = QueryDispatcher()
    _, peer = dispatcher.join(slots=1)
    with dispatcher.runtime.open(request(), caller=ANONYMOUS) as first:
        second = dispatcher.runtime.open(request(), caller=ANONYMOUS)
    assert peer.sent[2:] == [Cancel(id=first.id), Start(id=second.id, request=SEEDED)]
    assert dispatcher.runtime.totals().slots_busy == 1


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
    assert peer.reason == "the balancer is going down"
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
