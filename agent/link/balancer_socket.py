"""A socket with a writer task, so that senders never wait.

Large messages leave and arrive in pieces (`shared/framing/frames`). The queue is bounded: a peer
that does not read is disconnected. If the closing handshake takes too long, the connection is
aborted.
"""

import asyncio
from collections.abc import Callable

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ...shared.framing.frames import Assembler, BadPiece, FrameQueue
from ...shared.inference import RequestId
from ...shared.messages import BALANCER_HEADER, WORKERS_HEADER, FromAgent
from .codec import AgentCodec

MAX_WAITING = 1024
"""Maximum messages waiting for the peer to read; an engine makes tens of them per second."""
CLOSE_GRACE = 2.0
"""Maximum time for the last frames and the closing handshake, in seconds."""
_MAX_CLOSE_REASON = 123
"""Maximum bytes of a reason in a close frame (RFC 6455, 5.5)."""

WELL, FAILED = 1000, 1011
"""Codes of a close frame (RFC 6455, 7.4.1)."""


class BalancerSocket:
    """One open socket, used only on the event loop's thread."""

    def __init__(self, socket: ClientConnection, close_grace: float) -> None:
        self._socket = socket
        self._close_grace = close_grace
        self._code = WELL
        self._queue: FrameQueue[FromAgent] = FrameQueue(AgentCodec(self._cannot_send))
        self._assembler = Assembler()
        self._has_work = asyncio.Event()
        self._on_unsendable: Callable[[RequestId], None] | None = None
        self._why: str | None = None

    @property
    def balancer(self) -> str | None:
        """The name of the balancer that answered, if it sent one; it changes with each start."""
        response = self._socket.response
        return None if response is None else response.headers.get(BALANCER_HEADER)

    @property
    def workers(self) -> str | None:
        """The header about the processes behind the balancer's port; `None` for only one."""
        response = self._socket.response
        return None if response is None else response.headers.get(WORKERS_HEADER)

    def abort(self) -> None:
        """Close the connection at once; use it before anything was sent."""
        self._socket.transport.abort()

    @property
    def why_closed(self) -> str:
        """The reason why the socket closed, as far as known, in words."""
        return self._why or self._socket.close_reason or "the other side closed the socket"

    def put(self, message: FromAgent) -> None:
        """Queue a message; messages are sent in order as the peer reads."""
        if self._why is not None:
            return
        if len(self._queue) < MAX_WAITING:
            self._queue.put(message)
            self._has_work.set()
        else:
            self._why = "it does not read its messages"
            self._socket.transport.abort()

    def close(self, reason: str, code: int = WELL) -> None:
        """Close once all messages queued so far are sent; later messages are dropped."""
        if self._why is not None:
            return
        self._why, self._code = reason, code
        self._has_work.set()
        # A peer that reads nothing would let neither the last frames nor the handshake through.
        asyncio.get_running_loop().call_later(self._close_grace, self._socket.transport.abort)

    async def serve(
        self,
        take: Callable[[str | bytes], None],
        heard: Callable[[], None],
        on_unsendable: Callable[[RequestId], None],
    ) -> None:
        """Send queued messages and pass every received message to `take`, until the socket closes.

        `heard` is called for every piece that does not complete a message. `on_unsendable` is
        called for each request whose items cannot be encoded, while the exception is handled. The
        balancer gets an error for such a request.
        """
        self._on_unsendable = on_unsendable
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._write())
            await self._read(take, heard)
            writer.cancel()

    def _cannot_send(self, id: RequestId) -> None:
        if self._on_unsendable is not None:
            self._on_unsendable(id)

    async def _read(self, take: Callable[[str | bytes], None], heard: Callable[[], None]) -> None:
        try:
            async for frame in self._socket:
                message = self._assembler.take(frame) if isinstance(frame, bytes) else frame
                if message is None:
                    heard()
                else:
                    take(message)
        except BadPiece as error:
            self._why = f"the balancer's frame: {error}"
            await self._socket.close(1002, _cut(self._why))
        except ConnectionClosed:
            return

    async def _write(self) -> None:
        try:
            while True:
                while (frame := self._queue.next()) is not None:
                    data, is_text = frame
                    await self._socket.send(data, text=is_text)
                if self._why is not None:
                    break
                await self._has_work.wait()
                self._has_work.clear()
            await self._socket.close(self._code, _cut(self._why))
        except ConnectionClosed:
            return


def _cut(reason: str) -> str:
    return reason.encode()[:_MAX_CLOSE_REASON].decode(errors="ignore")
