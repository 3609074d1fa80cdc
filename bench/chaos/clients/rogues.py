"""Agents and clients that mean harm: they lie, keep silent, or send what is costly to read.

What they do ends their own connections alone. Requests that such an agent was given go to others.
"""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

from websockets.exceptions import ConnectionClosed, InvalidHandshake

from bench.chaos.hosts import Hosts
from integration_tests.rogue_agent import RogueAgent, ended, status

SLOTS = 4096
"""What a rogue agent claims to have."""

TINY_RATE = 5e-324
NUM_ITEMS = 400_000
COMPRESSED = gzip.compress(bytes(64 * 2**20))
EMPTY_FRAGMENTS = b"\x01\x80\x00\x00\x00\x00" + b"\x00\x80\x00\x00\x00\x00" * 40_000
PINGS = b"\x89\x80\x00\x00\x00\x00" * 40_000
UPGRADE = (
    "GET /api/v1/socket HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
BODY = (
    "GET /health HTTP/1.1\r\nHost: {host}\r\nContent-Encoding: gzip\r\n"
    f"Content-Length: {len(COMPRESSED)}\r\n\r\n"
)
HEADERS = "GET /health HTTP/1.1\r\nHost: {host}\r\n" + "x: y\r\n" * 20_000


def _constrained(**grammar: object) -> dict[str, object]:
    return {"prompt": "A slot", "max_tokens": 8, "grammar": grammar}


def _chain(length: int) -> dict[str, object]:
    """A schema that refers to another one, and so on."""
    links = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": links | {f"d{length}": {"type": "string"}}}


COSTLY = (
    _constrained(type="regex", pattern="a?" * 30_000),
    _constrained(type="regex", pattern="(a?){1,300}" * 10),
    _constrained(type="json_schema", schema=_chain(9_000)),
    _constrained(type="json_schema", schema=_chain(1_000)),
    _constrained(type="lark", grammar="start: " + "(" * 5_000 + '"a"' + ")" * 5_000),
    _constrained(type="gbnf", grammar="root ::= " + " ".join(["[a-z]"] * 12_000)),
    {"prompt": "a" * 300_000, "max_tokens": 1},
    {"prompt": "<|im_start|>a" * 40_000, "max_tokens": 1},
    {"prompt": [1] * 400_000, "max_tokens": 1},
)
"""Requests that are costly to compile, to tokenise or to hold."""


def _request(body: dict[str, object]) -> tuple[str, bytes]:
    data = json.dumps(body).encode()
    head = (
        "POST /api/v1/generate HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head, data


SENT_BY_CLIENTS = (
    (UPGRADE, EMPTY_FRAGMENTS),
    (UPGRADE, PINGS),
    (BODY, COMPRESSED),
    (HEADERS, b"\r\n"),
    *map(_request, COSTLY),
)
"""For each way, the head of a request, and what follows it."""


class Rogues:
    """They come from addresses of their own to the balancer of `hosts`."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    async def agent(self, amount: float, seconds: float) -> None:
        """One agent of the model that all serve, for so long; `amount` chooses what it does."""
        ways: tuple[Callable[[RogueAgent], Awaitable[None]], ...] = (
            _keeps_silent,
            _lies,
            _floods,
            _sends_much,
        )
        way = ways[int(amount * len(ways)) % len(ways)]
        address = self._hosts.ground.network.ghost_address()
        name = f"rogue-{uuid4().hex}"
        with suppress(TimeoutError, ConnectionClosed, InvalidHandshake, OSError):
            async with (
                asyncio.timeout(seconds),
                RogueAgent.dial(self._hosts, name, slots=SLOTS, address=address) as rogue,
            ):
                await way(rogue)

    async def client(self, amount: float, seconds: float) -> None:
        """One client after the other, for so long; `amount` chooses what they send."""
        head, rest = SENT_BY_CLIENTS[int(amount * len(SENT_BY_CLIENTS)) % len(SENT_BY_CLIENTS)]
        here = self._hosts.ground.network.ghost_address()
        address = urlsplit(self._hosts.inference)
        data = head.format(host=address.netloc).encode() + rest
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with suppress(OSError):
                        await _send(address.hostname or "", address.port or 0, here, data)
                    await asyncio.sleep(0.05)


async def _keeps_silent(rogue: RogueAgent) -> None:
    """It lives, takes what it is given, and never answers."""
    await rogue.until_closed()


async def _lies(rogue: RogueAgent) -> None:
    """It ends the first answer that it should give with a rate that cannot be."""
    start = await rogue.next("start")
    await rogue.items(ended(start, rates={"decode_tokens_per_second": TINY_RATE}))
    await rogue.until_closed()


async def _floods(rogue: RogueAgent) -> None:
    """It sends statuses as fast as it can."""
    for number in range(2**31):
        await rogue.send(status(slots=1 + number % SLOTS))


async def _sends_much(rogue: RogueAgent) -> None:
    """It sends one message of very many items."""
    item = b'{"type":"busy","id":"x"}'
    await rogue.send_bytes(b'{"type":"output","items":[' + b",".join([item] * NUM_ITEMS) + b"]}")
    await rogue.until_closed()


async def _send(host: str, port: int, here: str | None, data: bytes) -> None:
    """Sends `data` on a connection of its own, and reads until the balancer closes it."""
    local = None if here is None else (here, 0)
    reader, writer = await asyncio.open_connection(host, port, local_addr=local)
    try:
        writer.write(data)
        await reader.read()
    finally:
        writer.transport.abort()
