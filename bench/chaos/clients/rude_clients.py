"""Clients that do not stay: they close, reset, half-close, read no more, or are gone."""

import asyncio
import json
import socket
import struct
from contextlib import closing, suppress
from urllib.parse import urlsplit

from bench.chaos.wire.line import FAIR, Weather
from bench.chaos.wire.network import Network
from integration_tests.corpus import ENDLESS

LARGE = ENDLESS | {"logprobs": True, "top_logprobs": 20}
"""An answer with so much in it that no buffer takes it all."""

STARTS_WITHIN = 20.0
GONE_FOR = 6.0
"""Seconds for which nothing comes from a host that is gone; then it is there, and knows nothing."""


class RudeClients:
    """They ask at `url`."""

    def __init__(self, url: str, network: Network) -> None:
        self._network = network
        address = urlsplit(url)
        self._host, self._port = address.hostname or "", address.port or 0

    async def vanish(self, amount: float) -> None:
        """One goes in the middle of its answer; `amount` chooses how."""
        sock = await self._asked(ENDLESS)
        with closing(sock):
            if amount < 1 / 3:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif amount < 2 / 3:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)

    async def stop_reading(self, seconds: float) -> None:
        """One reads nothing for so long, and closes."""
        with closing(await self._asked(LARGE)):
            await asyncio.sleep(seconds)

    async def ghost(self) -> None:
        """The host of one is gone in the middle of its answer."""
        address = self._network.ghost_address() or ""
        sock = await self._asked(ENDLESS, address)
        await self._network.set_weather(address, Weather(is_cut=True))
        sock.close()
        await asyncio.sleep(GONE_FOR)
        await self._network.set_weather(address, FAIR)

    async def _asked(self, body: dict[str, object], address: str | None = None) -> socket.socket:
        """A connection whose answer has begun."""
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        try:
            if here := address or self._network.client_address():
                sock.bind((here, 0))
            async with asyncio.timeout(STARTS_WITHIN):
                await loop.sock_connect(sock, (self._host, self._port))
                await loop.sock_sendall(sock, self._request(body))
                await loop.sock_recv(sock, 1024)
        except (OSError, TimeoutError):
            pass  # Another fault strikes as well; then there is no client to disconnect.
        return sock

    def _request(self, body: dict[str, object]) -> bytes:
        payload = json.dumps(body).encode()
        head = (
            f"POST /api/v1/generate HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        return head.encode() + payload
