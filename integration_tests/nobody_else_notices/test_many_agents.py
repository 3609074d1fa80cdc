"""What clients are told of a large fleet costs what changes, not what is there."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from websockets.asyncio.client import ClientConnection, connect

from arriero.balancer.fleet.runtime.agent_socket import PATH
from arriero.shared.inference import AgentId
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Heartbeat,
    Hello,
    Output,
    Piece,
    encode_from_agent,
)
from arriero.shared.reports.model_info import ModelInfo
from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import DEADLINE, LONGEST_LINE, Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "simulated"
NUM_REQUESTS = 300
NUM_DELTAS = 3
"""So many with an agent are read: what is told now and then is not in all of them."""
COMING = 3.0
"""Seconds that a stream may stand still while hundreds of agents and clients come."""
HEARTBEAT = encode_from_agent(Heartbeat())


@dataclass
class Seen:
    """What a reader of the events and of the list of models got."""

    num_agents: int
    changed: set[str]
    """Names of the agents that deltas told of."""
    delta: int
    """Bytes of the shortest of `NUM_DELTAS`."""
    models: int
    """Bytes of `GET /v1/models`."""


def _hello(number: int, slots: int) -> bytes:
    model = ModelInfo(
        name=MODEL, architecture="none", parameters=0, size_bytes=0, context_size=LONG_CONTEXT
    )
    hello = Hello(
        protocol=PROTOCOL_VERSION,
        agent_id=AgentId(uuid4().hex),  # those before it keep theirs for a while
        name=f"simulated-{number}",
        version="test",
        slots=slots,
        model=model,
    )
    return encode_from_agent(hello)


async def _serve(socket: ClientConnection) -> None:
    """One piece of text for each request, which then goes on in silence."""
    async for frame in socket:
        message = json.loads(frame)
        if message["type"] == "start":
            piece = Piece(id=message["id"], text="a", tokens=(7,))
            await socket.send(encode_from_agent(Output(items=(piece,))), text=True)


async def _live(sockets: list[ClientConnection]) -> None:
    """Tells the balancer that they are there, as agents without news do."""
    while True:
        for socket in sockets:
            await socket.send(HEARTBEAT, text=True)
        await asyncio.sleep(1)


@asynccontextmanager
async def simulated(fleet: Fleet, num_agents: int) -> AsyncIterator[None]:
    """So many agents that have `NUM_REQUESTS` requests between them."""
    url = f"ws://{fleet.balancer.ready['management']}{PATH}"
    slots = NUM_REQUESTS // num_agents + 1
    async with asyncio.TaskGroup() as group:
        sockets = []
        for number in range(num_agents):
            socket = await connect(url, compression=None, proxy=None, ping_interval=None)
            await socket.send(_hello(number, slots), text=True)
            sockets.append(socket)
        tasks = [group.create_task(_serve(socket)) for socket in sockets]
        tasks.append(group.create_task(_live(sockets)))
        tasks += [group.create_task(_ask(fleet)) for _ in range(NUM_REQUESTS)]
        await until_all_run(fleet)
        yield
        for task in tasks:
            task.cancel()
        for socket in sockets:
            socket.transport.abort()


async def until_all_run(fleet: Fleet) -> None:
    """Waits until all requests, the bystander's too, have had text."""
    url = f"{fleet.management}/api/v1/requests?state=streaming&limit=1000"

    async def run() -> bool:
        async with fleet.http.get(url) as response:
            return len((await response.json())["requests"]) == NUM_REQUESTS + 1

    await until(run)


async def _ask(fleet: Fleet) -> None:
    body = {"model": MODEL, "prompt": "a"}
    async with fleet.http.post(f"{fleet.inference}/api/v1/generate", json=body) as response:
        await response.read()


async def see(fleet: Fleet) -> Seen:
    """Reads until agents have changed a few times.

    A snapshot may be older than the reader, which then gets deltas with it. The first figure of the
    throughput comes after those.
    """
    async with (
        asyncio.timeout(DEADLINE),
        fleet.http.get(f"{fleet.inference}/v1/models") as response,
    ):
        models = len(await response.read())
    url = f"{fleet.management}/api/v1/events"
    async with asyncio.timeout(DEADLINE), fleet.http.get(url) as response:
        events = _events(response.content)
        snapshot = json.loads((await anext(events))[1])
        names = {agent["id"]: agent["name"] for agent in snapshot["agents"]}
        async for kind, data in events:
            if kind == b"throughput":
                break
            delta = json.loads(data)
            for each in delta.get("agents", ()):
                names[each["id"]] = each.get("name", names.get(each["id"]))
            for id in delta.get("agents_left", ()):
                del names[id]
        changed: set[str] = set()
        deltas: list[int] = []
        async for kind, data in events:
            if kind == b"delta" and (agents := json.loads(data).get("agents")):
                changed |= {names[agent["id"]] for agent in agents}
                deltas.append(len(data))
                if len(deltas) == NUM_DELTAS:
                    break
    return Seen(len(names), changed, min(deltas), models)


async def _events(lines: Any) -> AsyncIterator[tuple[bytes, bytes]]:
    """The kind and the data of each event."""
    kind, data = b"", b""
    while line := await lines.readuntil(b"\n", max_size=LONGEST_LINE):
        name, _, value = line.rstrip(b"\n").partition(b": ")
        kind, data = (value if name == b"event" else kind), (value if name == b"data" else data)
        if not name and data:
            yield kind, data
            kind, data = b"", b""


async def until_left(fleet: Fleet) -> None:
    """Waits until only the agent of the bystander is there."""

    async def have_left() -> bool:
        return len(await fleet.view("agents")) == 1

    await until(have_left)


async def test_a_change_costs_the_same_in_a_large_fleet(long_fleet: Fleet) -> None:
    async def attack(seen: Bystander) -> None:
        views = []
        for num_agents in (20, 200):
            async with simulated(long_fleet, num_agents):
                views.append(await see(long_fleet))
            await until_left(long_fleet)
        small, large = views
        assert (small.num_agents, large.num_agents) == (21, 201)
        assert small.changed == large.changed == {"agent-1"}
        assert large.delta < 1.2 * small.delta
        assert large.models == small.models

    async def fewer(seen: Bystander) -> None:
        """Half as many: a pause for each that comes is half as long, on a busy machine, too."""
        async with simulated(long_fleet, 100):
            await see(long_fleet)
        await until_left(long_fleet)

    await unnoticed(long_fleet, attack, harmless=fewer, allowance=COMING)
