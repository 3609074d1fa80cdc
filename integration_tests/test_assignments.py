"""What a balancer assigns to a real agent: loaded, swapped under a stream, changed, refused.

The balancer is one that the test speaks for, so that each order comes when the test wants it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.messages import (
    Ended,
    FromAgent,
    Heartbeat,
    Hello,
    Item,
    Output,
    Start,
    Status,
    decode_from_agent,
)
from arriero.shared.models.assignments import Assign, Assignment
from arriero.shared.reports.statistics import Statistics
from arriero.shared.sampling import SamplingChoices
from integration_tests.daemons import DEADLINE, MODEL, Daemon
from integration_tests.pace import Pace
from tests.agent.fakes import WELCOME, FakeBalancer, Peer

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST = Assignment(name="first", source=f"file://{MODEL}", slots=2, context_size=1024)
SECOND = replace(FIRST, name="second", context_size=512)
LENGTH = 400


class Link:
    """One connection of the agent: what it says is awaited as long as a daemon may take."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.hello: Hello

    async def next(self) -> FromAgent:
        frame = await asyncio.wait_for(self.peer.socket.recv(), DEADLINE)
        return decode_from_agent(frame)

    async def status(self, phase: str) -> Status:
        """The next one that tells of `phase`."""
        while True:
            message = await self.next()
            if isinstance(message, Status) and message.work and message.work.phase == phase:
                return message

    async def items(self) -> tuple[Item, ...]:
        while not isinstance(message := await self.next(), Output):
            assert isinstance(message, Heartbeat | Status | Statistics)
        return message.items

    async def generate(self, name: str, length: int) -> None:
        request = GenerateRequest(prompt="Once", max_tokens=length, ignore_eos=True)
        await self.peer.say(Start(id=RequestId(name), request=request))

    async def end(self) -> Ended:
        """The end of the one request that runs, and all that comes before."""
        while not isinstance(last := (await self.items())[-1], Ended):
            pass
        return last


class Host:
    """An agent without a model, and the test as its balancer."""

    def __init__(self, agent: Daemon, balancer: FakeBalancer) -> None:
        self.agent = agent
        self.balancer = balancer
        self.revision = 0

    async def link(self) -> Link:
        """The agent's next connection, let in."""
        peer = await asyncio.wait_for(asyncio.Queue.get(self.balancer.peers), DEADLINE)
        link = Link(peer)
        hello = await link.next()
        assert isinstance(hello, Hello)
        link.hello = hello
        await peer.say(WELCOME)
        return link

    async def assign(self, link: Link, assignment: Assignment | None) -> None:
        self.revision += 1
        await link.peer.say(Assign(revision=self.revision, assignment=assignment))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    async with AsyncExitStack() as stack:
        balancer = await stack.enter_async_context(FakeBalancer.open())
        pace = await Pace.open()
        stack.push_async_callback(pace.close)
        agent = await Daemon.start(
            *("agent", "--balancer", balancer.url, "--name", "box", "--label", "gpu=no"),
            *("--threads", "1", "--models-max", "1"),
            env=pace.environment,
        )
        agent.pace = pace
        stack.push_async_callback(agent.close)
        yield Host(agent, balancer)


async def test_from_idle_to_swapped_to_idle(host: Host, tmp_path: Path) -> None:
    idle = await host.link()
    assert (idle.hello.slots, idle.hello.model) == (0, None)
    assert idle.hello.labels == {"gpu": "no"}
    assert idle.hello.facts.memory > 0
    ready = await host.agent.until_ready()
    assert (ready["slots"], ready["model"]) == ("0", '""')

    await host.assign(idle, FIRST)
    first = await host.link()
    assert first.hello.takes_over
    assert first.hello.slots == 2
    assert first.hello.model is not None and first.hello.model.name == "first"
    assert first.hello.work is not None and first.hello.work.phase == "serving"

    # Swapped while a stream runs: the new process takes over, the stream finishes.
    await host.agent.pace.hand_out(5)
    await first.generate("r", LENGTH)
    await first.items()
    await host.assign(first, SECOND)
    second = await host.link()
    assert second.hello.takes_over
    assert second.hello.model is not None and second.hello.model.name == "second"
    await host.agent.pace.let_go()
    ended = await first.end()
    assert (ended.finish_reason, ended.usage.completion_tokens) == ("length", LENGTH)
    await asyncio.wait_for(first.peer.socket.wait_closed(), DEADLINE)

    # A file that is not there, and one that is no model: what runs goes on.
    await host.assign(second, replace(SECOND, source=f"file://{tmp_path}/missing.gguf"))
    [issue] = (await second.status("failed")).issues
    assert issue.code == "not_found"
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(MODEL.read_bytes()[:200_000])
    await host.assign(second, replace(SECOND, source=f"file://{torn}"))
    [issue] = (await second.status("failed")).issues
    assert issue.code in ("load_failed", "torn")
    assert issue.hint
    await second.generate("s", 3)
    assert (await second.end()).usage.completion_tokens == 3

    # Back to what runs, and a change that needs no reload.
    third = replace(SECOND, name="third", sampling=SamplingChoices(temperature=0.0))
    await host.assign(second, third)
    status = await second.status("serving")
    assert (status.issues, status.model and status.model.name) == ((), "third")
    texts = [await text_of(second, name) for name in ("t", "u")]
    assert texts[0] == texts[1], "greedy, by the model's defaults"
    assert host.balancer.peers.empty(), "on the same link"

    await host.assign(second, None)
    last = await host.link()
    assert (last.hello.slots, last.hello.takes_over) == (0, True)
    await asyncio.wait_for(second.peer.socket.wait_closed(), DEADLINE)
    assert await host.agent.terminate() == 0


async def text_of(link: Link, name: str) -> str:
    await link.generate(name, 12)
    text = ""
    while True:
        items = await link.items()
        text += "".join(getattr(item, "text", "") for item in items)
        if isinstance(items[-1], Ended):
            return text
