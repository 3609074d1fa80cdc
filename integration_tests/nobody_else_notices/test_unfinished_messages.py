"""WebSocket messages that never end: their bytes are bounded, those of all sockets together."""

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import WSMsgType

from integration_tests.daemons import DEADLINE, Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

pytestmark = pytest.mark.asyncio(loop_scope="session")

PART_BYTES = 31 * 2**20
MOST_BYTES = 128 * 2**20
"""Of one address: half of what all may have."""
NUM_SOCKETS = MOST_BYTES // PART_BYTES + 1
OPCODE_TEXT = b"\x01"
"""Of a frame that is not the last one of its message."""

HELD = "arriero_request_body_bytes"


async def held_bytes(fleet: Fleet) -> float:
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        lines = (await response.text()).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{HELD} "))


def send_part(socket: aiohttp.ClientWebSocketResponse) -> None:
    """The first part of a message, masked with zeros, which leave it as it is."""
    header = OPCODE_TEXT + bytes([0x80 | 127]) + PART_BYTES.to_bytes(8, "big") + bytes(4)
    transport = socket._writer.transport
    assert transport is not None
    transport.write(header + b" " * PART_BYTES)


async def test_parts_of_messages_are_bounded(long_fleet: Fleet) -> None:
    url = f"{long_fleet.inference}/api/v1/socket"

    async def attack(seen: Bystander) -> None:
        async with AsyncExitStack() as stack:
            await fill(seen, stack)

    async def fill(seen: Bystander, stack: AsyncExitStack) -> None:
        sockets = [
            await stack.enter_async_context(long_fleet.http.ws_connect(url))
            for _ in range(NUM_SOCKETS)
        ]
        # Who reads answers pings: the balancer ends a socket that does not, however slow this is.
        readers = [asyncio.create_task(each.receive()) for each in sockets[:-1]]
        for number, socket in enumerate(sockets[:-1], start=1):
            send_part(socket)

            async def is_counted(goal: int = number * PART_BYTES) -> bool:
                return await held_bytes(long_fleet) >= goal

            await until(is_counted)
        await seen.until_more()
        send_part(sockets[-1])
        closed = await sockets[-1].receive(timeout=DEADLINE)
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, 1013)
        assert await held_bytes(long_fleet) <= MOST_BYTES
        await stack.aclose()
        await asyncio.gather(*readers)

        async def are_let_go() -> bool:
            return await held_bytes(long_fleet) == 0

        await until(are_let_go)
        async with asyncio.timeout(DEADLINE), long_fleet.http.ws_connect(url) as socket:
            await socket.send_json({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert (await socket.receive_json())["result"] == {"pong": True}

    await unnoticed(long_fleet, attack)
