"""Several places of one host, over processes that say what the test wants."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

from arriero.agent.supervision.supervisor_protocol import Begin, Loaded, Ready, ShareThreads, Stop
from arriero.shared.messages import Hello
from arriero.shared.models.assignments import Assignment, MemoryPart
from tests.agent.fakes import BYTES_INFO, WELCOME, FakeBalancer, Peer, ends_soon, soon
from tests.agent.supervision.fakes import FakeProcess
from tests.agent.supervision.test_supervisor import A, Agent, B, Swap, work_of

C = Assignment(name="c", source="file:///c.gguf")
ROOMY = 2**50


class Host(Swap):
    """An agent with places, and the balancer's end of their links."""

    def __init__(self, balancer: FakeBalancer, models_max: int, **settings: int) -> None:
        Agent.__init__(
            self, balancer, is_pinned=False, memory=ROOMY, models_max=models_max, **settings
        )
        self.balancer = balancer
        self.revision = 0

    async def spare(self) -> tuple[Peer, Hello]:
        """The next place that dials without an engine."""
        peer = await self.balancer.peers.get()
        hello = await peer.next()
        assert isinstance(hello, Hello)
        await peer.say(WELCOME)
        return peer, hello

    async def loads(self) -> tuple[FakeProcess, Begin]:
        """The next process, which has loaded and joined."""
        process, begin = await self.begun()
        process.report(Loaded(model=BYTES_INFO), Ready())
        await process.order()
        return process, begin


@asynccontextmanager
async def host(models_max: int = 3, **settings: int) -> AsyncIterator[Host]:
    async with FakeBalancer.open() as balancer:
        agent = Host(balancer, models_max, **settings)
        async with agent.running():
            yield agent


async def test_a_place_that_has_a_model_makes_another_one_spare() -> None:
    async with host() as agent:
        first, hello = await agent.spare()
        assert hello.host == hello.agent_id, "the first one's id is the host's"
        await agent.assign(first, A)
        second, other = await agent.spare()
        assert (other.host, other.name) == (hello.host, hello.name)
        assert other.agent_id != hello.agent_id and other.slots == 0
        _, begun_a = await agent.loads()
        await agent.assign(second, B)
        _, begun_b = await agent.loads()
        assert (begun_a.agent_id, begun_b.agent_id) == (hello.agent_id, other.agent_id)
        assert begun_a.host == begun_b.host == hello.host
        assert (await agent.spare())[1].host == hello.host


async def test_there_are_no_more_places_than_models_may_be_served() -> None:
    async with host(models_max=2) as agent:
        first, _ = await agent.spare()
        await agent.assign(first, A)
        second, _ = await agent.spare()
        await agent.loads()
        await agent.assign(second, B)
        await agent.loads()
        assert agent.balancer.peers.empty()


async def test_one_loads_after_the_other() -> None:
    async with host() as agent:
        first, _ = await agent.spare()
        await agent.assign(first, A)
        loading = await agent.process()
        second, _ = await agent.spare()
        await agent.assign(second, B)
        await work_of(second, "draining")
        assert agent.started.empty()
        loading.report(Loaded(model=BYTES_INFO), Ready())
        _, begin = await agent.loads()
        assert begin.assignment == B


async def test_a_second_spare_place_leaves() -> None:
    async with host() as agent:
        first, hello = await agent.spare()
        await agent.assign(first, A)
        process, _ = await agent.loads()
        second, _ = await agent.spare()
        agent.order(process, None)
        assert await process.order() == Stop(drain_timeout=9.0)
        process.exit(0)
        again, back = await agent.spare()
        assert back.agent_id == hello.agent_id
        await soon(second.socket.wait_closed())
        await agent.assign(again, C)
        assert (await agent.loads())[1].assignment == C


async def test_an_engine_that_crashes_starts_again_and_the_others_do_not_notice() -> None:
    async with host() as agent:
        first, _ = await agent.spare()
        await agent.assign(first, A)
        one, _ = await agent.loads()
        second, _ = await agent.spare()
        await agent.assign(second, B)
        other, _ = await agent.loads()
        one.exit(-signal.SIGKILL)
        _, begin = await agent.begun()
        assert begin.assignment == A
        assert not other.has_ended


async def test_the_agent_ends_when_all_of_its_places_have() -> None:
    async with FakeBalancer.open() as balancer:
        agent = Host(balancer, models_max=3)
        async with agent.running() as running:
            first, _ = await agent.spare()
            await agent.assign(first, A)
            one, _ = await agent.loads()
            second, _ = await agent.spare()
            await agent.assign(second, B)
            other, _ = await agent.loads()
            agent.shutdown.requested.set()
            for process in (one, other):
                assert await process.order() == Stop(drain_timeout=None)
            one.exit(0)
            assert not running.done()
            other.exit(0)
            await ends_soon(running)
            assert running.result() == 0


async def test_an_engine_begins_with_what_those_beside_it_hold() -> None:
    async with host() as agent:
        first, _ = await agent.spare()
        await agent.assign(first, A)
        one, begin = await agent.begun()
        assert begin.beside == ()
        held = (MemoryPart(device="CPU", bytes=5), MemoryPart(device="CUDA0", bytes=7))
        one.report(Loaded(model=replace(BYTES_INFO, memory=held)), Ready())
        second, _ = await agent.spare()
        await agent.assign(second, B)
        _, begin = await agent.begun()
        assert begin.beside == held


async def share_of(process: FakeProcess) -> ShareThreads:
    """Its next one."""
    while not isinstance(order := await process.orders.get(), ShareThreads):
        pass
    return order


def shares_in(process: FakeProcess) -> Iterator[ShareThreads]:
    """Those that it was sent and nobody looked at."""
    while not process.orders.empty():
        if isinstance(order := process.orders.get_nowait(), ShareThreads):
            yield order


async def test_engines_that_run_share_the_threads_anew_when_others_begin_or_end() -> None:
    async with host(threads=8, threads_batch=12) as agent:
        first, _ = await agent.spare()
        await agent.assign(first, A)
        one, begin = await agent.loads()
        assert (begin.settings.threads, begin.settings.threads_batch) == (8, 12)
        second, _ = await agent.spare()
        await agent.assign(second, B)
        other, begin = await agent.loads()
        assert (begin.settings.threads, begin.settings.threads_batch) == (4, 6)
        assert await share_of(one) == ShareThreads(threads=4, threads_batch=6)
        other.exit(-signal.SIGKILL)
        again, begin = await agent.loads()
        assert begin.settings.threads == 4, "one that starts again has its share at once"
        agent.order(again, None)
        assert await again.order() == Stop(drain_timeout=9.0)
        again.exit(0)
        assert await share_of(one) == ShareThreads(threads=8, threads_batch=12)
        assert not [*shares_in(again)]
