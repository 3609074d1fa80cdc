"""An agent's log over REST."""

import asyncio
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.agent_log import log_position
from arriero.shared.errors import InvalidRequest
from arriero.shared.messages import FromBalancer, LogRead, ReadLog
from arriero.shared.reports.log_lines import LogLine
from tests.balancer.management.peers import Peer

LINES = tuple(LogLine(number=n, at=float(n), level="info", text=f"line {n}") for n in (3, 4))


class Talker(Peer):
    """An agent that tells its log at once."""

    def send(self, message: FromBalancer) -> None:
        super().send(message)
        if isinstance(message, ReadLog):
            lines = tuple(line for line in LINES if line.number > message.after)
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


async def test_an_agent_that_is_not_here(client: TestClient) -> None:
    async with client.get("/api/v1/agents/nobody/log") as response:
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
