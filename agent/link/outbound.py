"""A socket with a writer of its own: who has something to send never waits.

The outbox is bounded: a peer that does not read what it is sent is disconnected, and one that
keeps the closing handshake from going through is cut off.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from ...shared.messages import MAX_FRAME_BYTES

MAX_OUTBOX_FRAMES = 1024
"""Frames that may wait for the peer to read; an engine makes some tens of them a second."""
CLOSE_GRACE = 2.0
"""How long the last frames and the closing handshake may take, in seconds."""
_MAX_CLOSE_REASON = 123
"""Bytes of a reason in a close frame (RFC 6455, 5.5)."""


async def dial(url: str, *, close_grace: float = CLOSE_GRACE) -> "Outbound":
    """Raises `OSError` or `WebSocketException` when nobody suitable answers."""
    socket = await connect(
        url,
        compression=None,
        max_size=MAX_FRAME_BYTES,
        ping_interval=None,  # the session has its own heartbeats
        close_timeout=close_grace,
        proxy=None,
    )
    return Outbound(socket, close_grace)


@dataclass(frozen=True, slots=True)
class _Close:
    reason: str


class Outbound:
    """One open socket. All of it belongs to the event loop's thread."""

    def __init__(self, socket: ClientConnection, close_grace: float) -> None:
        self._socket = socket
        self._close_grace = close_grace
        self._outbox: asyncio.Queue[bytes | _Close] = asyncio.Queue()
        self._why: str | None = None

    @property
    def why_closed(self) -> str:
        """Why the socket closed, as far as is known; for people."""
        return self._why or self._socket.close_reason or "the other side closed the socket"

    def put(self, frame: bytes) -> None:
        """Send a text frame, in order, when the peer reads."""
        if self._why is not None:
            return
        if self._outbox.qsize() < MAX_OUTBOX_FRAMES:
            self._outbox.put_nowait(frame)
        else:
            self._why = "it does not read what it is sent"
            self._socket.transport.abort()

    def close(self, reason: str) -> None:
        """Close once everything that was put has left; what is put later never leaves."""
        if self._why is not None:
            return
        self._why = reason
        self._outbox.put_nowait(_Close(reason))
        # A peer that reads nothing would let neither the last frames nor the handshake through.
        asyncio.get_running_loop().call_later(self._close_grace, self._socket.transport.abort)

    async def serve(self, take: Callable[[str | bytes], None]) -> None:
        """Write what is put and hand every frame to `take`, until the socket is closed."""
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._write())
            await self._read(take)
            writer.cancel()

    async def _read(self, take: Callable[[str | bytes], None]) -> None:
        try:
            async for frame in self._socket:
                take(frame)
        except ConnectionClosed:
            return

    async def _write(self) -> None:
        try:
            while not isinstance(item := await self._outbox.get(), _Close):
                await self._socket.send(item, text=True)
            await self._socket.close(reason=_cut(item.reason))
        except ConnectionClosed:
            return


def _cut(reason: str) -> str:
    return reason.encode()[:_MAX_CLOSE_REASON].decode(errors="ignore")
