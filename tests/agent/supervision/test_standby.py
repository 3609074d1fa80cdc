import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arriero.agent.link.balancer_secrets import BalancerSecrets
from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.standby import Standby
from arriero.shared.inference import AgentId
from arriero.shared.messages import Busy, Hello, Issue, Output, Status
from arriero.shared.models.assignments import Assign, HostFacts, Reload, Work
from tests.agent.fakes import BYTES_INFO, Expected, FakeBalancer, soon
from tests.waiting import HANGS

CRASHED = Issue(code="engine_crashed", message="SIGABRT")
AGAIN = Issue(code="engine_crashed", message="SIGABRT (2 times in a row)")


@pytest.fixture
async def balancer() -> AsyncIterator[FakeBalancer]:
    async with FakeBalancer.open() as balancer:
        yield balancer


WORK = Work(revision=1, phase="loading")


class Stand:
    """A stand-in, and what was heard through it."""

    def __init__(self, group: asyncio.TaskGroup, *urls: str) -> None:
        settings = AgentSettings(balancer=urls, name="box", slots=7, label=("gpu=yes",))
        self.orders: asyncio.Queue[Assign | Reload] = Expected()
        self.connected: asyncio.Queue[None] = Expected()
        self.standby = Standby(
            settings,
            AgentId("a1"),
            HostFacts(memory=5),
            group,
            secrets=BalancerSecrets(),
            on_connected=lambda: self.connected.put_nowait(None),
            on_order=self.orders.put_nowait,
        )

    def show(self, *issues: Issue, work: Work | None = None, is_making_way: bool = False) -> None:
        self.standby.show(issues, work, BYTES_INFO, is_making_way=is_making_way)


@asynccontextmanager
async def standing_in(*urls: str) -> AsyncIterator[Stand]:
    async with asyncio.timeout(HANGS), asyncio.TaskGroup() as group:
        stand = Stand(group, *urls)
        yield stand
        stand.standby.leave()


async def test_is_seen_by_every_balancer_without_slots(balancer: FakeBalancer) -> None:
    async with FakeBalancer.open() as other, standing_in(balancer.url, other.url) as stand:
        stand.show(CRASHED, work=WORK)
        hello = await (await balancer.peers.get()).next()
        assert isinstance(hello, Hello)
        assert (hello.agent_id, hello.name, hello.slots, hello.model) == ("a1", "box", 0, None)
        assert (hello.labels, hello.facts) == ({"gpu": "yes"}, HostFacts(memory=5))
        assert (hello.work, hello.loading, hello.takes_over) == (WORK, BYTES_INFO, True)
        status = await (await other.peer()).next()
        assert status == Status(slots=0, accepting=True, issues=(CRASHED,), work=WORK)
        await stand.connected.get()


async def test_tells_how_many_places_the_host_has(balancer: FakeBalancer) -> None:
    async with standing_in(balancer.url) as stand:
        stand.standby.host_changed(2)
        stand.show()
        peer = await balancer.peers.get()
        hello = await peer.next()
        assert isinstance(hello, Hello)
        assert hello.num_places == 2
        stand.standby.host_changed(3)
        await peer.socket.close()
        again = await (await balancer.peers.get()).next()
        assert isinstance(again, Hello)
        assert again.num_places == 3


async def test_tells_what_is_new_on_the_same_connection(balancer: FakeBalancer) -> None:
    async with standing_in(balancer.url) as stand:
        stand.show(CRASHED)
        peer = await balancer.peer()
        await peer.next()
        stand.show(CRASHED)
        stand.show(AGAIN, work=WORK)
        assert await peer.next() == Status(slots=0, accepting=True, issues=(AGAIN,), work=WORK)


async def test_takes_nothing_on_and_hands_orders_on(balancer: FakeBalancer) -> None:
    async with standing_in(balancer.url) as stand:
        stand.show(CRASHED)
        peer = await balancer.peer()
        await peer.next()
        await peer.start("r")
        answer = await peer.next()
        assert isinstance(answer, Output)
        assert [type(item) for item in answer.items] == [Busy]
        await peer.say(Reload(drain_timeout=1.0))
        assert await stand.orders.get() == Reload(drain_timeout=1.0)


async def test_leaves_and_may_come_back(balancer: FakeBalancer) -> None:
    async with standing_in(balancer.url) as stand:
        stand.show(CRASHED)
        peer = await balancer.peer()
        stand.standby.leave()
        await soon(peer.socket.wait_closed())
        stand.standby.leave()
        stand.show(AGAIN)
        await balancer.peer()


async def test_makes_way_where_it_is_not_let_in(balancer: FakeBalancer) -> None:
    async with FakeBalancer.open() as other, standing_in(balancer.url, other.url) as stand:
        stand.show()
        peer = await balancer.peer()
        await stand.connected.get()
        greeting = await other.peers.get()
        await greeting.next()
        stand.show(AGAIN, is_making_way=True)
        assert await peer.next() == Status(slots=0, accepting=True, issues=(AGAIN,))
        await soon(greeting.socket.wait_closed())
        assert other.peers.empty(), "it does not dial again"
        await peer.socket.close()
        stand.show(CRASHED, is_making_way=True)


async def test_leaves_at_once_where_nobody_answers() -> None:
    async with FakeBalancer.open() as balancer:
        url = balancer.url
    async with standing_in(url) as stand:
        stand.show(CRASHED)
