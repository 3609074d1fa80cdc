"""An agent's log over REST."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.agent_log import log_position
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import RequestId
from arriero.shared.messages import FromBalancer, LogRead, ReadLog, Withdraw
from arriero.shared.reports.log_lines import LogLine
from tests.balancer.management.peers import Peer
from tests.waiting import HANGS

LINES = tuple(LogLine(number=n, at=float(n), level="info", text=f"line {n}") for n in (3, 4))


class Talker(Peer):
    """An agent that tells its log at once; `waits` for what it has not logged yet."""

    def __init__(self, runtime: FleetRuntime, name: str) -> None:
        self.waits: list[RequestId] = []
        self.is_waiting = asyncio.Event()
        self.is_withdrawn = asyncio.Event()
        super().__init__(runtime, name)

    def log(self, number: int) -> None:
        """It logs another line, for whoever waits."""
        line = LogLine(number=number, at=float(number), level="info", text=f"line {number}")
        for id in self.waits:
            self._runtime.agent_said(self._link, LogRead(id=id, lines=(line,)))
        self.waits.clear()
        self.is_waiting.clear()

    def send(self, message: FromBalancer) -> None:
        super().send(message)
        if isinstance(message, Withdraw):
            self.is_withdrawn.set()
        if isinstance(message, ReadLog):
            lines = tuple(line for line in LINES if line.number > message.after)
            if message.wait and not lines:
                self.waits.append(message.id)
                self.is_waiting.set()
                return
            told = LogRead(id=message.id, lines=lines)
            asyncio.get_running_loop().call_soon(self._runtime.agent_said, self._link, told)


async def test_the_lines_that_follow(client: TestClient, runtime: FleetRuntime) -> None:
    Talker(runtime, "a")

    async def get(query: str) -> Any:
        async with client.get(f"/api/v1/agents/id-a/log{query}") as response:
            return await response.json()

    everything = await get("")
    assert [line["text"] for line in everything["lines"]] == ["line 3", "line 4"]
    assert everything["lines"][0] == {"number": 3, "at": 3.0, "level": "info", "text": "line 3"}
    assert everything["after"] == 4
    assert await get("?after=3") == {"lines": everything["lines"][1:], "after": 4}
    assert await get("?after=4") == {"lines": [], "after": 4}


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(HANGS):
        await event.wait()


async def test_lines_are_followed(client: TestClient, runtime: FleetRuntime) -> None:
    agent = Talker(runtime, "a")

    async def event(response: ClientResponse) -> tuple[str, Any]:
        async with asyncio.timeout(HANGS):
            lines = (await response.content.readuntil(b"\n\n")).decode().split("\n")
        return lines[0], json.loads(lines[2].removeprefix("data: "))

    async with client.get("/api/v1/agents/id-a/log/events?last_event_id=3") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        id, told = await event(response)
        assert (id, [line["number"] for line in told["lines"]]) == ("id: 4", [4])
        await soon(agent.is_waiting)
        agent.log(9)
        id, told = await event(response)
        assert (id, [line["number"] for line in told["lines"]]) == ("id: 9", [9])
        await soon(agent.is_waiting)
        assert runtime.num_log_reads == 1
        agent.leave()
        async with asyncio.timeout(HANGS):
            assert await response.content.read() == b"", "the link is gone"
    assert runtime.num_log_reads == 0


async def test_with_its_reader_the_read_at_the_agent_ends(
    client: TestClient, runtime: FleetRuntime
) -> None:
    agent = Talker(runtime, "a")
    async with client.get("/api/v1/agents/id-a/log/events?after=4") as response:
        await soon(agent.is_waiting)
        [id] = agent.waits
        response.close()
    await soon(agent.is_withdrawn)
    assert Withdraw(id=id) in agent.messages


async def test_an_agent_that_is_not_here(client: TestClient) -> None:
    for path in ("log", "log/events"):
        async with client.get(f"/api/v1/agents/nobody/{path}") as response:
            assert response.status == 404


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"after": "-1"}, "after"),
        ({"after": "soon"}, "after"),
        ({"after": str(2**53)}, "after"),
        ({"before": "1"}, "before"),
    ],
)
def test_a_wrong_parameter_is_named(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        log_position(query)
    assert refused.value.field == field
