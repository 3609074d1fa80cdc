"""Frames, bodies and messages made to be costly: they end their own connection and stall nobody.

What the balancer allows is far above what honest peers send, and what it closes gets a reason.
"""

import asyncio
import gzip
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from arriero.balancer.fleet.runtime.agent_socket import PATH as AGENT_SOCKET
from arriero.shared.inference import AgentId
from arriero.shared.messages import PROTOCOL_VERSION, Hello, encode_from_agent
from integration_tests.daemons import Daemon, Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

pytestmark = pytest.mark.asyncio(loop_scope="session")

Attack = Callable[[], Awaitable[None]]

WITHIN = 60.0
CLIENT_SOCKET = "/api/v1/socket"
EMPTY_FRAGMENT = b"\x00\x80\x00\x00\x00\x00"
BEGIN_MESSAGE = b"\x01\x80\x00\x00\x00\x00"
PING = b"\x89\x80\x00\x00\x00\x00"
TOO_MUCH = 1008
"""The close code of a connection that went beyond what any honest peer sends."""


async def disturbs_nobody(fleet: Fleet, attack: Attack) -> None:
    """Runs `attack` beside a stream, which must not stall for it."""

    async def within_time(_seen: Bystander) -> None:
        async with asyncio.timeout(WITHIN):
            await attack()

    await unnoticed(fleet, within_time)


@asynccontextmanager
async def connection(
    address: str,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def _upgrade(path: str, address: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def _text(message: bytes) -> bytes:
    """One masked text frame; the mask of zeros leaves it as it is."""
    return b"\x81" + bytes([0x80 | 127]) + len(message).to_bytes(8, "big") + bytes(4) + message


def _piece(message: bytes, number: int, *, is_last: bool) -> bytes:
    """A binary frame with a part of a message of an agent."""
    payload = number.to_bytes(4, "big") + bytes([1 if is_last else 0]) + message
    return b"\x82" + bytes([0x80 | 127]) + len(payload).to_bytes(8, "big") + bytes(4) + payload


def _in_pieces(message: bytes) -> bytes:
    size = 512 * 1024
    parts = [message[start : start + size] for start in range(0, len(message), size)]
    return b"".join(
        _piece(part, 1, is_last=index == len(parts) - 1) for index, part in enumerate(parts)
    )


async def _send(writer: asyncio.StreamWriter, data: bytes, times: int) -> None:
    """Sends it again and again, until the other side has enough."""
    try:
        for _ in range(times):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return


async def _close_code(reader: asyncio.StreamReader) -> int | None:
    """The code of the close frame that comes; `None` where the connection just ends."""
    try:
        while True:
            first, length = await reader.readexactly(2)
            size = length
            if length == 126:
                size = int.from_bytes(await reader.readexactly(2), "big")
            elif length == 127:
                size = int.from_bytes(await reader.readexactly(8), "big")
            payload = await reader.readexactly(size)
            if first & 0x0F == 0x8:
                return int.from_bytes(payload[:2], "big")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def flood(address: str, path: str, first: bytes, data: bytes, times: int) -> int | None:
    """Floods one WebSocket while what it answers is read; the code it is closed with.

    `None` where its close frame was lost: the system drops what was not read yet when data comes
    for a connection that is closed.
    """
    async with connection(address) as (reader, writer):
        writer.write(_upgrade(path, address) + first)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        async with asyncio.TaskGroup() as tasks:
            closed = tasks.create_task(_close_code(reader))
            sending = tasks.create_task(_send(writer, data, times))
            code = await closed
            sending.cancel()
        return code


async def num_flooded(fleet: Fleet, port: str) -> float:
    """How many sockets of a port were closed since their peers sent too much."""
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        lines = (await response.text()).splitlines()
    name = f"arriero_{port}_flooded_sockets "
    [value] = [float(line.split()[-1]) for line in lines if line.startswith(name)]
    return value


def _errors(daemon: Daemon) -> list[str]:
    lines = [json.loads(line) for line in daemon.stderr if line.startswith("{")]
    return [line["message"] for line in lines if line["level"] == "error"]


@pytest.mark.parametrize("num_connections", [1, 4])
async def test_empty_fragments_without_a_key(long_fleet: Fleet, num_connections: int) -> None:
    address = long_fleet.balancer.ready["inference"]

    async def attack() -> None:
        data = EMPTY_FRAGMENT * 40_000
        async with asyncio.TaskGroup() as tasks:
            floods = [
                tasks.create_task(flood(address, CLIENT_SOCKET, BEGIN_MESSAGE, data, 100))
                for _ in range(num_connections)
            ]
        assert {each.result() for each in floods} <= {TOO_MUCH, None}

    await disturbs_nobody(long_fleet, attack)
    await long_fleet.balancer.until_line(long_fleet.balancer.stderr, "tiny frames")


async def test_empty_fragments_as_an_agent(long_fleet: Fleet) -> None:
    address = long_fleet.balancer.ready["management"]

    async def attack() -> None:
        before = await num_flooded(long_fleet, "management")
        data = EMPTY_FRAGMENT * 40_000
        assert await flood(address, AGENT_SOCKET, BEGIN_MESSAGE, data, 100) in (TOO_MUCH, None)
        assert await num_flooded(long_fleet, "management") == before + 1

    await disturbs_nobody(long_fleet, attack)


@pytest.mark.parametrize("path", [CLIENT_SOCKET, AGENT_SOCKET])
async def test_a_flood_of_pings(long_fleet: Fleet, path: str) -> None:
    port = "inference" if path == CLIENT_SOCKET else "management"
    address = long_fleet.balancer.ready[port]

    async def attack() -> None:
        before = await num_flooded(long_fleet, port)
        assert await flood(address, path, b"", PING * 40_000, 50) in (TOO_MUCH, None)
        assert await num_flooded(long_fleet, port) == before + 1

    await disturbs_nobody(long_fleet, attack)


@pytest.mark.parametrize("path", [CLIENT_SOCKET, AGENT_SOCKET])
async def test_a_peer_that_is_gone_in_a_flood_of_pings(long_fleet: Fleet, path: str) -> None:
    port = "inference" if path == CLIENT_SOCKET else "management"
    address = long_fleet.balancer.ready[port]
    num_before = len(_errors(long_fleet.balancer))
    for _ in range(20):
        async with connection(address) as (reader, writer):
            writer.write(_upgrade(path, address))
            await reader.readuntil(b"\r\n\r\n")
            writer.write(PING * 90)
            await writer.drain()

    async def are_gone() -> bool:
        async with long_fleet.http.get(f"{long_fleet.management}/metrics") as response:
            lines = (await response.text()).splitlines()
        name = f"arriero_{port}_connections "
        [value] = [float(line.split()[-1]) for line in lines if line.startswith(name)]
        return value < 20

    await until(are_gone)
    assert _errors(long_fleet.balancer)[num_before:] == []


@pytest.mark.parametrize("port", ["inference", "management"])
async def test_a_body_that_inflates_to_gigabytes(long_fleet: Fleet, port: str) -> None:
    address = long_fleet.balancer.ready[port]
    body = gzip.compress(bytes(2**20)) * 1900  # 2 GB; members follow each other
    head = (
        f"GET /health HTTP/1.1\r\nHost: {address}\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()

    async def attack() -> None:
        for _ in range(3):
            async with connection(address) as (reader, writer):
                writer.write(head + body)
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 415 "), answer[:300]
            assert b"Connection: close" in answer

    await disturbs_nobody(long_fleet, attack)


async def test_a_body_in_chunks_of_one_byte(long_fleet: Fleet) -> None:
    address = long_fleet.balancer.ready["inference"]
    head = (
        f"GET /health HTTP/1.1\r\nHost: {address}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()

    async def attack() -> None:
        for _ in range(3):
            async with connection(address) as (_, writer):
                writer.write(head)
                await _send(writer, b"1\r\nx\r\n" * 40_000, 40)

    await disturbs_nobody(long_fleet, attack)


def _hello() -> bytes:
    """Of another agent each time: one that was dismissed for its messages has to wait."""
    hello = Hello(
        protocol=PROTOCOL_VERSION,
        agent_id=AgentId(uuid.uuid4().hex),
        name="rogue",
        version="test",
        slots=1,
    )
    return _text(encode_from_agent(hello))


def _unknown_fields() -> bytes:
    names = b",".join(b'"k%d":0' % number for number in range(2_600_000))
    return b'{"type":"heartbeat",' + names + b"}"


COSTLY: dict[str, Callable[[], bytes]] = {
    "items": lambda: (
        b'{"type":"output","items":[' + b'{"type":"busy","id":""},' * 1_200_000 + b"0]}"
    ),
    "unknown fields": _unknown_fields,
    "numbers": lambda: b'{"type":"evicted","keys":[' + b"7," * 15_000_000 + b"7]}",
    "escapes": lambda: b'{"type":"log_read","id":"a","x":"' + b"\\n" * 15_500_000 + b'"}',
}
"""Made when they are needed: each has about 30 MB."""


@pytest.mark.parametrize("kind", COSTLY)
async def test_a_message_that_is_costly_to_decode(long_fleet: Fleet, kind: str) -> None:
    address = long_fleet.balancer.ready["management"]
    frames = _in_pieces(COSTLY[kind]())

    async def attack() -> None:
        for _ in range(2):
            code = await flood(address, AGENT_SOCKET, _hello(), frames, 1)
            assert code in (TOO_MUCH, None)

    await disturbs_nobody(long_fleet, attack)
    assert [agent["name"] for agent in await long_fleet.view("agents")] == ["agent-1"]


async def test_http_1_0_with_chunks_and_kept_alive(long_fleet: Fleet) -> None:
    for port in ("inference", "management"):
        address = long_fleet.balancer.ready[port]
        head = f" HTTP/1.0\r\nHost: {address}\r\nConnection: keep-alive\r\n"
        second = f"GET /health{head}\r\n"
        for first, status in (
            (f"POST /health{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
            (f"GET /health{head}\r\n", b"200"),
        ):
            async with connection(address) as (reader, writer):
                writer.write((first + second).encode())
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.0 " + status), answer
            assert answer.count(b"\r\nContent-Type:") == 1, "the second request is not processed"
