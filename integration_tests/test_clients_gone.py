"""A disconnect frees the request's slot within a second, whatever state the request is in."""

import asyncio
import json
import socket
import struct
from urllib.parse import urlsplit

import pytest

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import Fleet, until

WITHIN = 1.0


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


async def endless_fleet(fleet: Fleet, slots: int = 1) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(slots=slots, context_size=LONG_CONTEXT)


@pytest.mark.parametrize("leave", [close, half_close, reset])
@pytest.mark.parametrize("stream", [True, False])
async def test_while_running(fleet: Fleet, leave: object, stream: bool) -> None:
    assert callable(leave)
    await endless_fleet(fleet)
    sock = await connect(fleet, ENDLESS | {"stream": stream})
    await fleet.until_num_requests(1, "streaming")

    leave(sock)
    await fleet.until_idle(WITHIN)
    answer = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert answer.text == plain_cases()[0].answer
    sock.close()


@pytest.mark.parametrize("leave", [close, half_close, reset])
async def test_while_queued(fleet: Fleet, leave: object) -> None:
    assert callable(leave)
    await endless_fleet(fleet)
    running = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_num_requests(1, "streaming")
    sock = await connect(fleet, ENDLESS)
    await fleet.until_num_requests(1, "queued")

    leave(sock)
    await fleet.until_num_requests(0, "queued", WITHIN)
    assert await fleet.busy_slots() == 1
    assert not running.done()
    running.cancel()
    sock.close()


async def test_websocket_close_cancels_all_it_started(fleet: Fleet) -> None:
    await endless_fleet(fleet, slots=2)
    socket_ = await fleet.http.ws_connect(f"{fleet.inference}/api/v1/socket")
    for number in range(3):
        await socket_.send_json(
            {"jsonrpc": "2.0", "id": f"r{number}", "method": "generate", "params": ENDLESS}
        )
    await fleet.until_num_requests(2, "streaming")
    await fleet.until_num_requests(1, "queued")

    await socket_.close()
    await fleet.until_idle(WITHIN)


async def test_a_sibling_on_another_connection_goes_on(fleet: Fleet) -> None:
    await endless_fleet(fleet, slots=2)
    leaver = await connect(fleet, ENDLESS)
    stayer = asyncio.create_task(
        generate(fleet.http, fleet.inference, ENDLESS | {"max_tokens": 1000})
    )
    await fleet.until_num_requests(2, "streaming")
    close(leaver)

    async def one_busy() -> bool:
        return await fleet.busy_slots() == 1

    await until(one_busy, deadline=WITHIN)
    assert (await stayer).end["usage"]["completion_tokens"] == 1000
