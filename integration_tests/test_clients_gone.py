"""A disconnect frees the request's slot within a second, whatever state the request is in."""

import asyncio
import json
import socket
import struct
from urllib.parse import urlsplit

import pytest

from integration_tests.corpus import ENDLESS, generate, plain_cases
from integration_tests.daemons import Fleet, until

WITHIN = 1.0

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
async def test_while_running(small_fleet: Fleet, leave: object, stream: bool) -> None:
    assert callable(leave)
    sock = await connect(small_fleet, ENDLESS | {"stream": stream})
    await small_fleet.until_num_requests(1, "streaming")

    leave(sock)
    await small_fleet.until_idle(WITHIN)
    answer = await generate(small_fleet.http, small_fleet.inference, plain_cases()[0].body)
    assert answer.text == plain_cases()[0].answer
    sock.close()


@pytest.mark.parametrize("leave", [close, half_close, reset])
async def test_while_queued(small_fleet: Fleet, leave: object) -> None:
    assert callable(leave)
    running = [
        asyncio.create_task(generate(small_fleet.http, small_fleet.inference, ENDLESS))
        for _ in range(2)
    ]
    await small_fleet.until_num_requests(2, "streaming")
    sock = await connect(small_fleet, ENDLESS)
    await small_fleet.until_num_requests(1, "queued")

    leave(sock)
    await small_fleet.until_num_requests(0, "queued", WITHIN)
    assert await small_fleet.busy_slots() == 2
    for each in running:
        assert not each.done()
        each.cancel()
    sock.close()


async def test_websocket_close_cancels_all_it_started(small_fleet: Fleet) -> None:
    socket_ = await small_fleet.http.ws_connect(f"{small_fleet.inference}/api/v1/socket")
    for number in range(3):
        await socket_.send_json(
            {"jsonrpc": "2.0", "id": f"r{number}", "method": "generate", "params": ENDLESS}
        )
    await small_fleet.until_num_requests(2, "streaming")
    await small_fleet.until_num_requests(1, "queued")

    await socket_.close()
    await small_fleet.until_idle(WITHIN)


async def test_a_sibling_on_another_connection_goes_on(small_fleet: Fleet) -> None:
    leaver = await connect(small_fleet, ENDLESS)
    stayer = asyncio.create_task(
        generate(small_fleet.http, small_fleet.inference, ENDLESS | {"max_tokens": 1000})
    )
    await small_fleet.until_num_requests(2, "streaming")
    close(leaver)

    async def one_busy() -> bool:
        return await small_fleet.busy_slots() == 1

    await until(one_busy, deadline=WITHIN)
    assert (await stayer).end["usage"]["completion_tokens"] == 1000
