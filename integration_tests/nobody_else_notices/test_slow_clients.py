"""Clients that are slow, silent, or too many: disconnected in time, and no stream notices."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing

from integration_tests.corpus import ENDLESS, LONG_CONTEXT
from integration_tests.daemons import DEADLINE, Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


PATIENCE = 6
"""Seconds: the tests' own requests come sooner, even when a process stands still for a while."""


async def serving(fleet: Fleet, **settings: object) -> None:
    """A balancer with these settings, and an agent."""
    await fleet.start_balancer(**settings)  # type: ignore[arg-type]
    await fleet.start_agent(context_size=LONG_CONTEXT)


@asynccontextmanager
async def connections(address: str, num: int, sent: bytes) -> AsyncIterator[list[Connection]]:
    """Connections on each of which the same was sent."""
    host, port = address.split(":")
    async with AsyncExitStack() as opened:
        made: list[Connection] = []
        for _ in range(num):
            reader, writer = await asyncio.open_connection(host, int(port))
            opened.callback(writer.close)
            writer.write(sent)
            made.append((reader, writer))
        yield made


async def answers(opened: list[Connection]) -> list[bytes]:
    """What came on each connection until it was closed."""
    async with asyncio.timeout(DEADLINE):
        return [await _all_of(reader) for reader, _ in opened]


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_half_a_header_is_not_waited_for(fleet: Fleet) -> None:
    await serving(fleet, header_timeout=f"{PATIENCE}s")
    ready = fleet.balancer.ready
    half = b"POST /api/v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-"

    async def attack(seen: Bystander) -> None:
        async with (
            connections(ready["inference"], 30, half) as clients,
            connections(ready["management"], 30, half) as operators,
        ):
            assert set(await answers([*clients, *operators])) == {b""}

    await unnoticed(fleet, attack)


async def test_more_connections_than_there_may_be(fleet: Fleet) -> None:
    await serving(fleet, header_timeout="1h", max_connections=40)
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def attack(seen: Bystander) -> None:
        async with connections(fleet.balancer.ready["inference"], 45, b"") as opened:
            for _, writer in opened[-3:]:
                writer.write(ask)
            refusals = await answers(opened[-3:])
            assert all(b" 503 " in each and b"overloaded" in each for each in refusals)
        await until(lambda: _is_healthy(fleet))

    await unnoticed(fleet, attack)


async def _is_healthy(fleet: Fleet) -> bool:
    """Whether the inference port takes new connections again."""
    async with fleet.http.get(f"{fleet.inference}/health") as response:
        return response.status == 200


async def test_a_client_that_stops_reading(fleet: Fleet) -> None:
    """Its request ends although nobody closed the connection."""
    await serving(fleet, write_timeout="500ms")
    host, port = fleet.balancer.ready["inference"].split(":")
    body = json.dumps(ENDLESS | {"logprobs": True, "top_logprobs": 20}).encode()
    head = (
        "POST /api/v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )

    async def attack(seen: Bystander) -> None:
        fleet.balancer.stderr.clear()
        with closing(socket.socket()) as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # By the size of a segment the balancer's kernel decides how much it buffers.
            idle.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            idle.connect((host, int(port)))
            idle.sendall(head.encode() + body)
            said = await fleet.balancer.until_line(fleet.balancer.stderr, "read nothing for")
            assert json.loads(said)["level"] == "warning"
            await fleet.until_num_requests(1, "streaming")
            assert len(await fleet.view("requests")) == 1

    await unnoticed(fleet, attack)
