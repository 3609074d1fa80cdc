"""A disconnect frees the request's slot at once, whatever state the request is in.

The engine computes nothing meanwhile: so a slot is free because its client went, and not because an
answer came to its end or could not be written.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from integration_tests.corpus import ENDLESS, generate, plain_cases
from integration_tests.daemons import Fleet, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def held(small_fleet: Fleet) -> AsyncIterator[Fleet]:
    """Two slots of an engine that computes nothing but first tokens."""
    await small_fleet.hold()
    yield small_fleet
    await small_fleet.let_go()


async def connect(fleet: Fleet, body: dict[str, object]) -> socket.socket:
    """A bare TCP connection with one request sent on it."""
    address = urlsplit(fleet.inference)
    payload = json.dumps(body).encode()
    head = (
        f"POST /api/v1/generate HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    sock = socket.create_connection((address.hostname, address.port))
    sock.sendall(head.encode() + payload)
    sock.setblocking(False)
    return sock


def close(sock: socket.socket) -> None:
    sock.close()


def half_close(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.parametrize("leave", [close, half_close, reset])
@pytest.mark.parametrize("stream", [True, False])
async def test_while_running(held: Fleet, leave: object, stream: bool) -> None:
    assert callable(leave)
    sock = await connect(held, ENDLESS | {"stream": stream})
    await held.until_streaming(1)

    leave(sock)
    await held.until_idle()
    await held.let_go()
    answer = await generate(held.http, held.inference, plain_cases()[0].body)
    assert answer.text == plain_cases()[0].answer
    sock.close()


@pytest.mark.parametrize("leave", [close, half_close, reset])
async def test_while_queued(held: Fleet, leave: object) -> None:
    assert callable(leave)
    running = [asyncio.create_task(generate(held.http, held.inference, ENDLESS)) for _ in range(2)]
    await held.until_streaming(2)
    sock = await connect(held, ENDLESS)
    await held.until_num_requests(1, "queued")

    leave(sock)
    await held.until_num_requests(0, "queued")
    assert await held.busy_slots() == 2
    for each in running:
        assert not each.done()
        each.cancel()
    await held.until_idle()
    sock.close()


async def test_websocket_close_cancels_all_it_started(held: Fleet) -> None:
    socket_ = await held.http.ws_connect(f"{held.inference}/api/v1/socket")
    for number in range(3):
        await socket_.send_json(
            {"jsonrpc": "2.0", "id": f"r{number}", "method": "generate", "params": ENDLESS}
        )
    await held.until_streaming(2)
    await held.until_num_requests(1, "queued")

    await socket_.close()
    await held.until_idle()


async def test_a_sibling_on_another_connection_goes_on(held: Fleet) -> None:
    leaver = await connect(held, ENDLESS)
    stayer = asyncio.create_task(generate(held.http, held.inference, ENDLESS | {"max_tokens": 200}))
    await held.until_streaming(2)
    close(leaver)

    async def one_busy() -> bool:
        return await held.busy_slots() == 1

    await until(one_busy)
    await held.let_go()
    assert (await stayer).end["usage"]["completion_tokens"] == 200
