"""Agents go in the middle of answers: every API's client gets the answer that it gets otherwise.

All kinds of answers run at once on two agents, so that the end of one cuts several of them, each
somewhere else. Their events, joined, are those of a run in which nobody goes.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from integration_tests.daemons import DEADLINE, Daemon, Fleet, until
from integration_tests.folding import events_of
from integration_tests.mixed_requests import requests, split

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOTS = 16
NUM_REQUESTS = 15
LONGEST = 250
"""Tokens. The longest answers have some more."""

AGENT = {"slots": SLOTS, "context_size": 1024, "drain_timeout": "10ms"}


@dataclass
class Run:
    """All kinds at once, which are `NUM_REQUESTS`. `is_due` is set after `cut` events of all."""

    fleet: Fleet
    cut: int = 0
    num_events: int = 0
    is_due: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, path: str, body: dict[str, Any]) -> list[Any]:
        lines = []
        url = self.fleet.inference + path
        async with self.fleet.http.post(url, json=body) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                lines.append(line.decode())
                self.num_events += line.startswith((b"data:", b"{"))
                if self.num_events >= self.cut:
                    self.is_due.set()
        return events_of(lines)

    async def until_due(self, pair: "Pair") -> None:
        """Not every token is an event, so where those are too few more are computed."""
        async with asyncio.timeout(DEADLINE):
            while not self.is_due.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.is_due.wait(), 1.0)
                    return
                await pair.hand_out(1)

    async def answers(self) -> dict[str, list[Any]]:
        asked = requests()
        given = await asyncio.gather(*(self.answer(*each) for each in asked.values()))
        return dict(zip(asked, given, strict=True))


class Pair:
    """Two agents; one that goes is replaced."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.expected: dict[str, list[Any]] = {}
        self.num_moves = 0
        self.ids: dict[str, str] = {}
        self.pair: list[Daemon] = []

    async def fill(self) -> None:
        """Start what is missing."""
        missing = 2 - len(self.pair)
        self.pair += await asyncio.gather(
            *(self.fleet.start_agent(**AGENT) for _ in range(missing))
        )
        self.ids = {each["name"]: each["id"] for each in await self.fleet.view("agents")}

    async def hold(self) -> None:
        """Both compute nothing."""
        await self.hand_out(0)

    async def hand_out(self, num_steps: int) -> None:
        """Both compute so many steps, and then nothing."""
        for agent in self.pair:
            await agent.pace.hand_out(num_steps)

    async def until_begun(self) -> None:
        """Waits until the engines have all requests but those that wait: new agents get few."""

        async def have_begun() -> bool:
            states = [each["state"] for each in await self.fleet.view("requests")]
            said = [each["statistics"] for each in await self.fleet.view("agents")]
            # An agent that has just come has not said any yet.
            counts = [each["sequences"] for each in said if each]
            num = sum(each["running"] + each["waiting"] for each in counts)
            return len(states) == NUM_REQUESTS and num == len(states) - states.count("queued")

        await until(have_begun)

    async def let_go(self) -> None:
        """Those that are there compute as fast as it goes."""
        for agent in self.pair:
            await agent.pace.let_go()

    async def end(self, agent: Daemon, way: str) -> None:
        """It goes at once, freezes, is drained by an operator, or stops and gives back."""
        if way == "drained":
            await self.drain(agent)
            return
        self.pair.remove(agent)
        numbers = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}
        if way == "stopped":
            agent.signal(signal.SIGTERM)
        else:
            agent.signal_all(numbers[way])

    async def drain(self, agent: Daemon) -> None:
        id = self.ids[agent.ready["name"]]
        await self.fleet.steer(id, "drain", deadline="0s")
        await self.fleet.steer(id, "resume")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(heartbeat_interval="1s", heartbeat_timeout="10s")
        pair = Pair(fleet)
        await pair.fill()
        run = Run(fleet)
        answers = await run.answers()
        pair.expected = {kind: split(events) for kind, events in answers.items()}
        yield pair


def num_moves(answers: dict[str, list[Any]]) -> int:
    """As the native API's last events tell."""
    ends = [event for events in answers.values() for event in events if "timings" in event]
    return sum(event["timings"]["moves"] for event in ends)


@pytest.mark.parametrize(
    ("way", "share", "which"),
    [
        ("killed", 0.02, 0),
        ("killed", 0.3, 1),
        ("frozen", 0.1, 1),
        ("drained", 0.4, 0),
        ("stopped", 0.2, 1),
    ],
)
async def test_no_client_sees_that_an_agent_went(
    pair: Pair, way: str, share: float, which: int
) -> None:
    await pair.fill()
    num_steps = int(share * LONGEST)
    await pair.hold()
    run = Run(pair.fleet, cut=num_steps)
    answering = asyncio.create_task(run.answers())
    await pair.until_begun()
    await pair.hand_out(num_steps)
    await run.until_due(pair)
    await pair.end(pair.pair[which], way)
    await pair.let_go()
    answers = await answering
    for kind, events in answers.items():
        assert split(events) == pair.expected[kind], kind
    pair.num_moves += num_moves(answers)


async def test_agents_restart_one_after_another_under_load(pair: Pair) -> None:
    await pair.fill()
    is_over = False

    async def load() -> int:
        num_runs = 0
        while not is_over:
            answers = await Run(pair.fleet).answers()
            assert {kind: split(events) for kind, events in answers.items()} == pair.expected
            num_runs += 1
        return num_runs

    loads = [asyncio.create_task(load()) for _ in range(2)]
    for agent in list(pair.pair):
        await pair.end(agent, "stopped")
        assert await agent.exit_code() == 0
        await pair.fill()
    is_over = True
    assert all(await asyncio.gather(*loads))
    assert pair.num_moves >= 4, "the tests before moved too little to show anything"
