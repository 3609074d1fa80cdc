"""The daemon of an agent that forwards: a scripted server on one side, a balancer on the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arriero.agent import upstream_daemon
from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.supervisor_protocol import (
    Begin,
    Change,
    Changed,
    Dial,
    Loaded,
    Ready,
    Report,
    ReportStatus,
    ShareThreads,
    SupervisorChannel,
)
from arriero.shared.inference import AgentId, ChatMessage, GenerateRequest, RequestId
from arriero.shared.lifecycle import Shutdown
from arriero.shared.messages import Ask, Ended, Hello, Issue, Refused, Reply, Start, Status
from arriero.shared.models.assignments import Assignment, HostFacts
from arriero.shared.queries import Embed, Embedded
from tests.agent.fakes import WELCOME, Expected, FakeBalancer, Peer, soon
from tests.agent.upstream.scripted import Scripted

REQUEST = GenerateRequest(messages=(ChatMessage(role="user", content="hi"),), seed=77)
R = RequestId("r")


class Agent:
    def __init__(self, url: str, balancer: FakeBalancer, **settings: Any) -> None:
        self.settings = AgentSettings(
            **{"upstream": url, "name": "box", "slots": 3, "balancer": (balancer.url,), **settings}
        )
        self.shutdown = Shutdown()
        self.reported: asyncio.Queue[Report] = Expected()
        begin = Begin(
            agent_id=AgentId("a1"), settings=self.settings, facts=HostFacts(is_pinned=True)
        )
        self.channel = SupervisorChannel(begin, self.reported.put_nowait)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(upstream_daemon.main(self.settings, self.shutdown, self.channel))
        try:
            yield
        finally:
            self.shutdown.request("the test ends")
            await soon(task)


@asynccontextmanager
async def world(**settings: Any) -> AsyncIterator[tuple[Scripted, FakeBalancer, Agent]]:
    async with Scripted().serving() as scripted, FakeBalancer.open() as balancer:
        yield scripted, balancer, Agent(scripted.url, balancer, **settings)


async def joined(agent: Agent, balancer: FakeBalancer) -> Peer:
    """The connection, once the balancer has let the agent in."""
    agent.channel.dials.put_nowait(Dial())
    return await balancer.peer()


async def outcome(peer: Peer) -> Any:
    """The last item of the request that runs."""
    while True:
        if isinstance(item := (await peer.output()).items[-1], Ended | Refused):
            return item


async def test_it_says_what_its_server_has_and_forwards() -> None:
    async with world() as (_, balancer, agent), agent.running():
        agent.channel.dials.put_nowait(Dial())
        peer = await balancer.peers.get()
        hello = await peer.next()
        assert isinstance(hello, Hello)
        assert hello.model is not None
        assert hello.model.upstream is not None
        assert (hello.name, hello.slots) == ("box", 3)
        assert (hello.model.name, hello.model.upstream.kind) == ("m", "vllm")
        await peer.say(WELCOME)
        await peer.say(Start(id=R, request=REQUEST))
        assert (await outcome(peer)).finish_reason == "stop"
        await peer.say(Ask(id=RequestId("q"), query=Embed(inputs=("a",))))
        reply = await peer.next()
        assert isinstance(reply, Reply)
        assert isinstance(reply.result, Embedded)
        loaded = await agent.reported.get()
        assert isinstance(loaded, Loaded)
        assert loaded.model == hello.model
        assert await agent.reported.get() == Ready()


async def test_it_waits_for_a_server_that_is_not_there_yet() -> None:
    async with world() as (scripted, balancer, agent):
        scripted.status = 503
        async with agent.running():
            peer = await joined(agent, balancer)
            status = await peer.next()
            assert isinstance(status, Status)
            assert await agent.reported.get() == Loaded(model=None)
            assert (status.slots, status.model) == (0, None)
            assert [each.code for each in status.issues] == ["upstream_unreachable"]
            scripted.status = 200
            status = await peer.next()
            assert isinstance(status, Status)
            assert (status.slots, status.issues) == (3, ())


async def test_a_server_that_is_lost_takes_the_slots_along() -> None:
    async with world() as (scripted, balancer, agent), agent.running():
        peer = await joined(agent, balancer)
        scripted.status = 503
        await peer.say(Start(id=R, request=REQUEST))
        assert (await outcome(peer)).error.code == "shutting_down"
        status = await peer.next()
        assert isinstance(status, Status)
        assert (status.slots, status.model is None) == (0, False)
        assert [each.code for each in status.issues] == ["upstream_unreachable"]


async def test_it_finishes_what_runs_and_leaves() -> None:
    async with world() as (scripted, balancer, agent), agent.running():
        peer = await joined(agent, balancer)
        scripted.is_stuck = True
        await peer.say(Start(id=R, request=REQUEST))
        await peer.output()
        agent.shutdown.request("asked to")
        status = await peer.next()
        assert isinstance(status, Status)
        assert not status.accepting
        await peer.cancel("r")
        assert (await outcome(peer)).finish_reason == "cancelled"


async def test_what_the_supervisor_says_is_passed_on() -> None:
    async with world() as (_, balancer, agent), agent.running():
        peer = await joined(agent, balancer)
        issue = Issue(code="engine_crashed", message="it was started again")
        agent.channel.orders.put_nowait(ReportStatus(issues=(issue,)))
        status = await peer.next()
        assert isinstance(status, Status)
        assert status.issues == (issue,)
        agent.channel.orders.put_nowait(ShareThreads(threads=1, threads_batch=1))  # not its own
        wish = Assignment(name="wished", source="file:///m.gguf")
        agent.channel.orders.put_nowait(Change(assignment=wish))
        reports = [await agent.reported.get() for _ in range(3)]
        assert isinstance(reports[-1], Changed)
        issue = reports[-1].issue
        assert issue is not None and "what its upstream server has" in issue.message


async def test_it_stops_before_it_was_told_to_dial() -> None:
    async with world() as (_, _, agent), agent.running():
        assert isinstance(await agent.reported.get(), Loaded)


async def test_it_stops_while_its_server_says_nothing() -> None:
    async with world() as (scripted, _, agent):
        scripted.is_silent = True
        async with agent.running():
            await soon(scripted.was_asked.wait())
