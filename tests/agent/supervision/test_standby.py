import asyncio
from collections.abc import AsyncIterator

import pytest

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.standby import Standby
from arriero.shared.inference import AgentId
from arriero.shared.messages import Busy, Hello, Issue, Output, Status
from tests.agent.fakes import FakeBalancer

CRASHED = Issue(code="engine_crashed", message="SIGABRT")
AGAIN = Issue(code="engine_crashed", message="SIGABRT (2 times in a row)")


@pytest.fixture
async def balancer() -> AsyncIterator[FakeBalancer]:
    async with FakeBalancer.open() as balancer:
        yield balancer


def make(group: asyncio.TaskGroup, *urls: str) -> Standby:
    settings = AgentSettings(balancer=urls, name="box", slots=7)
    return Standby(settings, AgentId("a1"), group)


async def test_is_seen_by_every_balancer_without_slots(balancer: FakeBalancer) -> None:
    async with FakeBalancer.open() as other, asyncio.TaskGroup() as group:
        standby = make(group, balancer.url, other.url)
        standby.show((CRASHED,))
        hello = await (await balancer.peers.get()).next()
        assert isinstance(hello, Hello)
        assert (hello.agent_id, hello.name, hello.slots, hello.model) == ("a1", "box", 0, None)
        status = await (await other.peer()).next()
        assert status == Status(slots=0, accepting=True, issues=(CRASHED,))
        await standby.leave()


async def test_tells_what_is_new_on_the_same_connection(balancer: FakeBalancer) -> None:
    async with asyncio.TaskGroup() as group:
        standby = make(group, balancer.url)
        standby.show((CRASHED,))
        peer = await balancer.peer()
        await peer.next()
        standby.show((AGAIN,))
        assert await peer.next() == Status(slots=0, accepting=True, issues=(AGAIN,))
        await standby.leave()


async def test_takes_nothing_on(balancer: FakeBalancer) -> None:
    async with asyncio.TaskGroup() as group:
        standby = make(group, balancer.url)
        standby.show((CRASHED,))
        peer = await balancer.peer()
        await peer.next()
        await peer.start("r")
        answer = await peer.next()
        assert isinstance(answer, Output)
        assert [type(item) for item in answer.items] == [Busy]
        await standby.leave()


async def test_has_left_when_leave_returns_and_may_come_back(balancer: FakeBalancer) -> None:
    async with asyncio.TaskGroup() as group:
        standby = make(group, balancer.url)
        standby.show((CRASHED,))
        peer = await balancer.peer()
        await standby.leave()
        await asyncio.wait_for(peer.socket.wait_closed(), 5)
        await standby.leave()
        standby.show((AGAIN,))
        await balancer.peer()
        await standby.leave()


async def test_leaves_at_once_where_nobody_answers() -> None:
    async with FakeBalancer.open() as balancer:
        url = balancer.url
    async with asyncio.TaskGroup() as group:
        standby = make(group, url)
        standby.show((CRASHED,))
        await asyncio.wait_for(standby.leave(), 5)
