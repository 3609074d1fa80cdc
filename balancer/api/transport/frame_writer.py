"""Writes text frames to a WebSocket, for all calls on it.

A frame is written at once, past aiohttp's writer, which can only be awaited. What waits is in the
transport's buffer: a call that finds it full waits until the client has read, so the buffer holds
one frame of each call beyond its limit at most.
"""

import asyncio
from contextlib import suppress

from aiohttp import web

_TEXT = 0x81
"""A text frame that is its message's only one (RFC 6455, 5.2)."""


class FrameWriter:
    """`socket` is open on the connection of `request`."""

    def __init__(
        self, request: web.Request, socket: web.WebSocketResponse, tasks: asyncio.TaskGroup
    ) -> None:
        """One of `tasks` waits for the client. Raises `ConnectionResetError` if it has gone."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has disconnected")
        self._write = transport.write
        self._is_closing = transport.is_closing
        self._protocol = request.protocol
        self._drain = request.writer.drain
        self._socket = socket
        self._tasks = tasks
        self._turn = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None

    def write(self, frame: bytes) -> bool:
        """Writes one frame; says whether there is room for another.

        Does nothing once the connection is closing: the socket's reader then ends its calls.
        """
        if self._socket.closed or self._is_closing():
            return True
        self._write(_header(len(frame)) + frame)
        return not self._protocol.writing_paused

    async def drained(self) -> None:
        """Waits until there is room, or until the connection is lost."""
        # In turns: the next one looks again once the one before has written.
        async with self._turn:
            if self._protocol.writing_paused and not self._is_closing():
                # Shielded: a task that is cancelled while it waits at aiohttp's writer leaves a
                # cancelled future there for all who come later.
                if self._draining is None or self._draining.done():
                    self._draining = self._tasks.create_task(self._until_drained())
                await asyncio.shield(self._draining)

    def stop(self) -> None:
        """Drop all waiting frames."""
        if self._draining is not None:
            self._draining.cancel()

    async def _until_drained(self) -> None:
        with suppress(ConnectionError):
            await self._drain()


def _header(length: int) -> bytes:
    if length < 126:
        return bytes((_TEXT, length))
    if length < 2**16:
        return bytes((_TEXT, 126)) + length.to_bytes(2, "big")
    return bytes((_TEXT, 127)) + length.to_bytes(8, "big")
