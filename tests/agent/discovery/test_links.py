"""Connections to all balancers: names with several addresses, and balancers met twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from arriero.agent.discovery.links import AlreadyConnected, Links, resolve
from arriero.agent.link.balancer_socket import BalancerSocket
from arriero.agent.link.connection import Connection
from tests.waiting import HANGS


class FakeSocket:
    def __init__(self, balancer: str | None, workers: str | None = None) -> None:
        self.balancer, self.workers = balancer, workers
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class FakeConnection:
    """Dials once each time it is told to, and ends when it is drained."""

    def __init__(self, url: str, dial: Any, on_ended: Callable[[], None]) -> None:
        self.url, self.dial, self.on_ended = url, dial, on_ended
        self.is_live = False
        self.drained = asyncio.Event()

    async def run(self) -> None:
        await self.drained.wait()

    def drain(self, timeout: float) -> None:
        self.drained.set()


class Agent:
    """Links over a name server and balancers of the test's."""

    def __init__(self, group: asyncio.TaskGroup, *urls: str) -> None:
        self.names: dict[str, list[str]] = {}
        self.balancers: dict[str | None, str] = {}
        self.answers: list[tuple[str, str]] = []
        """What the next dials reach, and what it says of workers."""
        self.made: list[FakeConnection] = []
        self.dialled: list[str | None] = []
        self.news = asyncio.Condition()
        self._group, self._urls = group, urls
        self.links: Links

    def start(self) -> None:
        self.links = Links(
            self._urls,
            self._make,
            self._dial,
            self._group,
            resolve=self._resolve,
            lookup_interval=60.0,
            lookup_after_loss=0.0,
        )

    async def _resolve(self, host: str) -> Sequence[str]:
        asyncio.get_running_loop().call_soon(self._tell)  # what becomes of it is carried out first
        return self.names.get(host, [])

    def _tell(self) -> None:
        self._group.create_task(self._notify())

    async def _notify(self) -> None:
        async with self.news:
            self.news.notify_all()

    def _make(
        self, url: str, dial: Callable[[str], Awaitable[BalancerSocket]], ended: Callable[[], None]
    ) -> Connection:
        self.made.append(FakeConnection(url, dial, ended))
        return cast(Connection, self.made[-1])

    async def _dial(self, url: str, address: str | None) -> BalancerSocket:
        self.dialled.append(address)
        if self.answers:
            return cast(BalancerSocket, FakeSocket(*self.answers.pop(0)))
        return cast(BalancerSocket, FakeSocket(self.balancers.get(address)))

    async def until(self, num: int) -> None:
        """Wait until there are so many connections."""
        async with asyncio.timeout(HANGS), self.news:
            await self.news.wait_for(lambda: len(self.links) == num)


@pytest.fixture
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


async def test_an_address_needs_no_looking_up(group: asyncio.TaskGroup) -> None:
    agent = Agent(group, "ws://127.0.0.1:8060", "ws://[::1]:8060")
    agent.start()
    assert [each.url for each in agent.links] == ["ws://127.0.0.1:8060", "ws://[::1]:8060"]  # type: ignore[attr-defined]
    agent.links.leave()
    await agent.links.ended()


async def test_all_addresses_of_a_name_are_dialled(group: asyncio.TaskGroup) -> None:
    agent = Agent(group, "ws://balancers:8060")
    agent.names["balancers"] = ["10.0.0.1", "10.0.0.2"]
    agent.start()
    await agent.until(2)
    for connection in agent.made:
        await connection.dial(connection.url)
    assert agent.dialled == ["10.0.0.1", "10.0.0.2"]
    agent.links.leave()
    await agent.links.ended()


async def test_a_lost_connection_has_the_name_looked_up_again(group: asyncio.TaskGroup) -> None:
    agent = Agent(group, "ws://balancers:8060")
    agent.names["balancers"] = ["10.0.0.1", "10.0.0.2"]
    agent.start()
    await agent.until(2)
    agent.names["balancers"] = ["10.0.0.2", "10.0.0.3", "10.0.0.4"]
    agent.made[0].on_ended()
    await agent.until(3)
    assert agent.made[0].drained.is_set()
    agent.links.leave()
    await agent.links.ended()


async def test_a_balancer_that_two_addresses_lead_to_is_connected_once(
    group: asyncio.TaskGroup,
) -> None:
    agent = Agent(group, "ws://balancers:8060")
    agent.names["balancers"] = ["10.0.0.1", "10.0.0.2"]
    agent.balancers = {"10.0.0.1": "b", "10.0.0.2": "b"}
    agent.start()
    await agent.until(2)
    first, second = agent.made
    await first.dial("ws://balancers:8060")
    with pytest.raises(AlreadyConnected):
        await second.dial("ws://balancers:8060")
    second.on_ended()
    first.on_ended()
    await second.dial("ws://balancers:8060")
    agent.links.leave()
    await agent.links.ended()


async def test_each_worker_behind_an_address_is_met(group: asyncio.TaskGroup) -> None:
    agent = Agent(group, "ws://127.0.0.1:8060")
    agent.start()
    agent.answers = [("a", "2;a,b"), ("a", "2;a,b"), ("a", "2;a,b"), ("b", "2;a,b")]
    (first,) = agent.made
    await first.dial("")
    _, second = agent.made
    assert (await second.dial("")).balancer == "b"
    assert len(agent.dialled) == 4 and len(agent.made) == 2

    second.on_ended()
    agent.answers = [("a", "2;a"), ("a", "2;a,c"), ("c", "2;a,c")]
    with pytest.raises(AlreadyConnected):
        await second.dial("")
    assert len(agent.answers) == 2, "the lost one is not there yet"
    assert (await second.dial("")).balancer == "c"

    second.on_ended()
    agent.answers = [("a", "1;a")]
    with pytest.raises(AlreadyConnected):
        await second.dial("")
    assert len(agent.links) == 1 and second.drained.is_set()
    agent.links.leave()
    await agent.links.ended()


async def test_only_those_that_are_let_in_may_stay(group: asyncio.TaskGroup) -> None:
    agent = Agent(group, "ws://127.0.0.1:1", "ws://127.0.0.1:2")
    agent.start()
    agent.made[0].is_live = True
    agent.links.leave(only_dead=True)
    assert [each.drained.is_set() for each in agent.made] == [False, True]
    agent.links.leave()
    await agent.links.ended()


async def test_after_stop_nothing_more_is_dialled(group: asyncio.TaskGroup) -> None:
    agent = Agent(group, "ws://balancers:8060")
    agent.start()
    agent.links.stop()
    await agent.links.ended()
    assert agent.made == []


async def test_names_are_looked_up() -> None:
    assert await resolve("localhost") in (["127.0.0.1"], ["::1"])
    assert await resolve("no-such-host.invalid") == []
