"""Clients' WebSockets: the parts that are common to all their protocols.

A frame is written at once and not through aiohttp's writer, which can only be awaited. Waiting
frames are in the transport's buffer. If a call finds the buffer full, it waits until the client
has read. So the buffer holds at most one frame of each call beyond its limit.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Generic, TypeVar

from aiohttp import WSCloseCode, WSMsgType, web

from ....shared.errors import InvalidRequest, Overloaded
from ....shared.framing.handshake import is_handshake, received
from .bodies import BODIES, Held
from .callers import caller_of
from .connections import watch_frames
from .fault_reports import report_refusal

HEARTBEAT_SECONDS = 30.0
"""Seconds between pings. A peer that does not answer within half this time is lost."""

FLUSH_SECONDS = 2.0
"""Seconds in which a socket can read its last frames when the balancer shuts down."""

MAX_CLOSE_REASON = 123
"""Maximum bytes of a reason in a close frame (RFC 6455, 5.5)."""

_TEXT = 0x81
"""The first byte of a text frame that is a whole message (RFC 6455, 5.2)."""


class FrameWriter:
    """Writes text frames to a socket, for all calls on it.

    `socket` is open on the connection of `request`.
    """

    def __init__(
        self, request: web.Request, socket: web.WebSocketResponse, tasks: asyncio.TaskGroup
    ) -> None:
        """Start one of `tasks`, which waits for the client.

        Raises `ConnectionResetError` if the client has disconnected.
        """
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
        """Write one frame. Returns whether another frame can be written at once.

        Does nothing once the connection is closing; the socket's reader then ends the calls.
        """
        if self._socket.closed or self._is_closing():
            return True
        self._write(_header(len(frame)) + frame)
        return not self._protocol.writing_paused

    async def drained(self) -> None:
        """Wait until another frame can be written, or until the connection is lost."""
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


class SocketSession(ABC):
    """One open WebSocket: a reader that never waits for answers. `run` it once.

    A subclass takes messages, and has tasks that answer them.
    """

    def __init__(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        tasks: asyncio.TaskGroup,
        held: Held,
    ) -> None:
        """Prepare. `held` counts the bytes of messages being read or waiting for their answers."""
        self.counts_parts = False
        """Whether `count` is also called for parts of messages as they arrive."""
        self._request = request
        self._socket = socket
        self._tasks = tasks
        self._held = held
        self._bodies = request.app[BODIES]
        self._frames = FrameWriter(request, socket, tasks)
        self._is_close_due = asyncio.Event()
        self._close_reason = (WSCloseCode.OK, "")
        """The code and the reason for closing the socket, once it is to be closed."""

    @abstractmethod
    async def take(self, message: bytes) -> None:
        """Take a message, whose bytes are counted."""

    @property
    @abstractmethod
    def answering(self) -> Collection[asyncio.Task[None]]:
        """The tasks that write answers."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the tasks, because the socket is closed and no answer can be sent."""

    async def serve(self) -> None:
        """Read until either side closes the socket."""
        while await self.read_one():
            pass

    def count(self, num_bytes: int) -> bool:
        """Count received bytes of messages. Returns whether they are within the limits."""
        try:
            self._held.add(num_bytes)
        except Overloaded as error:
            report_refusal(self._request, error)
            reason = (
                "the balancer is reading too many messages and bodies at once; try again in a "
                "moment"
            )
            self.close_with(WSCloseCode.TRY_AGAIN_LATER, reason)
            return False
        return True

    async def run(self) -> None:
        """Serve the socket until either side closes it."""
        async with self._tasks:
            closer = self._tasks.create_task(self._close_when_due())
            try:
                await self.serve()
            finally:
                self._frames.stop()
                if not self._is_close_due.is_set():
                    closer.cancel()
                self.stop()

    async def read_one(self) -> bool:
        """Take the next message. Returns whether to read another."""
        message = await received(self._socket)
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return False
        if self.counts_parts or self.count(len(message.data)):
            await self.take(message.data)
        return True

    async def send(self, *frames: bytes) -> None:
        """Write frames, waiting for the client if necessary."""
        await self._frames.drained()
        for frame in frames:
            self._frames.write(frame)

    async def retire(
        self, code: int = WSCloseCode.GOING_AWAY, reason: str = "shutting down"
    ) -> None:
        """Send the remaining frames of calls that have ended, then close the socket."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                if tasks := self.answering:
                    await asyncio.wait(tasks)
                await self._frames.drained()
        await self._close(code, reason)

    def close_with(self, code: WSCloseCode, reason: str) -> None:
        """Close the socket soon, without waiting for answers."""
        self._close_reason = (code, reason)
        self._is_close_due.set()

    async def _close_when_due(self) -> None:
        await self._is_close_due.wait()
        await self._close(*self._close_reason)

    async def _close(self, code: int, reason: str) -> None:
        whole = reason.encode()[:MAX_CLOSE_REASON].decode(errors="ignore")
        await self._socket.close(code=code, message=whole.encode())


S = TypeVar("S", bound=SocketSession)

Open = Callable[[web.Request, web.WebSocketResponse, asyncio.TaskGroup, Held], S]
"""Makes the session of a new socket."""


class Sockets(Generic[S]):
    """The WebSockets of an endpoint, which are closed when the balancer shuts down."""

    def __init__(self, open_session: Open[S], *, max_message: int, refusal: str) -> None:
        """Prepare. A message has at most `max_message` bytes.

        `refusal` answers requests other than handshakes.
        """
        self._open_session = open_session
        self._max_message = max_message
        self._refusal = refusal
        self._sessions: set[S] = set()

    async def close(self) -> None:
        """Close every open socket once its waiting frames are sent, or after `FLUSH_SECONDS`."""
        await asyncio.gather(*(session.retire() for session in self._sessions))

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Answer a handshake, and serve its socket. Raises `InvalidRequest` for anything else."""
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_SECONDS,
            timeout=FLUSH_SECONDS,
            max_msg_size=self._max_message,
            compress=False,
            decode_text=False,
        )
        if not is_handshake(socket, request):
            raise InvalidRequest(self._refusal)
        tasks = asyncio.TaskGroup()
        with request.app[BODIES].held(caller_of(request)) as held:
            session = self._open_session(request, socket, tasks, held)
            session.counts_parts = watch_frames(
                request,
                count=session.count,
                on_fault=lambda reason, code: session.close_with(code, reason),
            )
            await socket.prepare(request)
            self._sessions.add(session)
            try:
                await session.run()
            finally:
                self._sessions.discard(session)
        return socket
