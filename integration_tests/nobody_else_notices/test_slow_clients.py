"""Clients that are slow, silent, or too many: disconnected in time, and no stream notices."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing

import pytest
import pytest_asyncio

from integration_tests.corpus import ENDLESS, LONG_CONTEXT
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices.bystander import bystander

pytestmark = pytest.mark.asyncio(loop_scope="module")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict() -> AsyncIterator[Fleet]:
    """A fleet with little patience."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(
            header_timeout="500ms", write_timeout="500ms", max_connections=40
        )
        await fleet.start_agent(context_size=LONG_CONTEXT)
        yield fleet


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
    async with asyncio.timeout(10):
        return [await _all_of(reader) for reader, _ in opened]


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_half_a_header_is_not_waited_for(strict: Fleet) -> None:
    ready = strict.balancer.ready
    half = b"POST /api/v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-"
    async with bystander(strict):
        for address in (ready["inference"], ready["management"]):
            async with connections(address, 30, half) as opened:
                assert set(await answers(opened)) == {b""}


async def test_more_connections_than_there_may_be(strict: Fleet) -> None:
    ready = strict.balancer.ready
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with bystander(strict):
        async with connections(ready["inference"], 45, b"") as opened:
            for _, writer in opened[-3:]:
                writer.write(ask)
            refusals = await answers(opened[-3:])
            assert all(b" 503 " in each and b"overloaded" in each for each in refusals)
        await until(lambda: _is_healthy(strict), deadline=5)


async def _is_healthy(fleet: Fleet) -> bool:
    """Whether the inference port takes new connections again."""
    async with fleet.http.get(f"{fleet.inference}/health") as response:
        return response.status == 200


async def test_a_client_that_stops_reading(strict: Fleet) -> None:
    """Its request ends although nobody closed the connection."""
    host, port = strict.balancer.ready["inference"].split(":")
    body = json.dumps(ENDLESS | {"logprobs": True, "top_logprobs": 20}).encode()
    head = (
        "POST /api/v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    async with bystander(strict):
        with closing(socket.socket()) as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect((host, int(port)))
            idle.sendall(head.encode() + body)
            await strict.until_num_requests(2, "streaming")
            await strict.until_num_requests(1, "streaming", deadline=60)
            said = await strict.balancer.until_line(strict.balancer.stderr, "read nothing for")
            assert json.loads(said)["level"] == "warning"
