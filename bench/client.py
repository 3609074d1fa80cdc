"""A streaming HTTP client with little overhead while a measurement runs.

It only records which bytes came when. They are parsed after the request has ended, because the
client shares the processors with the servers.
"""

import asyncio
import json
import time
from typing import Any

from bench.dialects import Dialect, Request
from bench.sample import Arrival, Sample, read_answer

_LAST_CHUNK = b"0\r\n\r\n"

DEADLINE = 300.0
"""Seconds after which an answer that has not ended is cut off, which is a failure."""


class RequestLifecycle(asyncio.Protocol):
    """One request on a connection of its own.

    `underway` is done when bytes have come `underway_after` times, `ended` when the answer or the
    connection has ended. Neither fails: errors show in the bytes.
    """

    def __init__(self, request: bytes, underway_after: int) -> None:
        loop = asyncio.get_running_loop()
        self._request = request
        self._underway_after = underway_after
        self._transport: Any  # a write transport; uvloop's does not inherit from asyncio's
        self._deadline: asyncio.TimerHandle
        self.arrivals: list[Arrival] = []
        self.underway: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[float] = loop.create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)
        self._deadline = asyncio.get_running_loop().call_later(DEADLINE, transport.abort)

    def data_received(self, data: bytes) -> None:
        self.arrivals.append((time.perf_counter(), data))
        if len(self.arrivals) == self._underway_after:
            self.underway.set_result(None)
        if data.endswith(_LAST_CHUNK):
            self._end()
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(time.perf_counter())
        if not self.underway.done():
            self.underway.set_result(None)


class Client:
    """Asks one server, in its dialect."""

    def __init__(self, host: str, port: int, dialect: Dialect) -> None:
        self._host = host
        self._port = port
        self._dialect = dialect

    def speaking(self, dialect: Dialect) -> "Client":
        """A client of the same server that speaks `dialect`."""
        return Client(self._host, self._port, dialect)

    async def ask(
        self, request: Request, *, underway: asyncio.Event | None = None, underway_after: int = 1
    ) -> Sample:
        """The whole request, as its client measured it.

        Sets `underway` when bytes have come `underway_after` times, or the request has ended.
        """
        sent_at = time.perf_counter()
        try:
            lifecycle = await self._send(request, underway_after)
        except OSError as error:
            return Sample(sent_at=sent_at, ended_at=time.perf_counter(), failure=repr(error))
        if underway is not None:
            await lifecycle.underway
            underway.set()
        ended_at = await lifecycle.ended
        return read_answer(
            lifecycle.arrivals, self._dialect, request, sent_at=sent_at, ended_at=ended_at
        )

    async def _send(self, request: Request, underway_after: int) -> RequestLifecycle:
        loop = asyncio.get_running_loop()
        head_and_body = self._head_and_body(request)
        _, lifecycle = await loop.create_connection(
            lambda: RequestLifecycle(head_and_body, underway_after), self._host, self._port
        )
        return lifecycle

    def _head_and_body(self, request: Request) -> bytes:
        body = json.dumps(self._dialect.body(request)).encode()
        head = (
            f"POST {self._dialect.path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + body
