"""The messages that wait for one agent. Large messages are sent in pieces.

No code waits for an agent that reads slowly. If too many messages wait, or sending a frame takes
too long, the balancer closes the connection.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from aiohttp import ClientConnectionResetError, WSCloseCode, WSMsgType, web

from ....shared.framing.frames import PIECE_BYTES, Assembler, FrameQueue, Topic
from ....shared.framing.unsent import limit_unsent
from ....shared.messages import Ask, Cancel, FromBalancer, Start, Withdraw, encode_from_balancer
from ....shared.reports.figures import Family, Figure


@dataclass(frozen=True, slots=True)
class AgentBacklog:
    """The number of unsent messages, and the bytes of large messages in transfer."""

    num_messages: Annotated[
        int,
        Figure(
            metric=Family(
                "agent_messages_waiting", "Messages to agents that are not sent completely yet."
            )
        ),
    ] = 0
    num_bytes: Annotated[
        int,
        Figure(
            metric=Family(
                "agent_transfer_bytes",
                "Bytes of large messages that are being sent or received in pieces.",
            )
        ),
    ] = 0


class AgentConnection(Protocol):
    """An agent's socket. No method waits or raises."""

    def backlog(self) -> AgentBacklog:
        """Return the unsent messages, and the bytes of incomplete messages from the agent."""

    def send(self, message: FromBalancer) -> None:
        """Send `message` after all earlier messages."""

    def disconnect(self, reason: str) -> None:
        """Close the socket after all messages have been sent."""


class BalancerCodec:
    """The `Codec` of messages to an agent. Each message belongs to at most one request."""

    def encode(self, message: FromBalancer) -> bytes:
        return encode_from_balancer(message)

    def topics(self, message: FromBalancer) -> Sequence[Topic]:
        return (message.id,) if isinstance(message, Start | Cancel | Ask | Withdraw) else ()

    def halves(self, message: FromBalancer) -> tuple[FromBalancer, FromBalancer]:
        raise TypeError(f"`{message.type}` is about one request at most")

    def merged(self, message: FromBalancer, follower: FromBalancer) -> None:
        return None

    def cuts_short(self, message: FromBalancer) -> bool:
        """Return whether `message` cancels a request or query.

        Unsent messages about the request or query are then dropped.
        """
        return isinstance(message, Cancel | Withdraw)

    def in_place_of(self, message: FromBalancer) -> FromBalancer | None:
        """Return the message to send if `message` cancels an unsent request.

        Returns `None` for a query.
        """
        return Cancel(id=message.id, is_unsent=True) if isinstance(message, Cancel) else None

    def unsendable(self, message: FromBalancer, reason: str) -> FromBalancer | None:
        """Raise `ValueError`. Requests that an agent cannot read must be refused earlier."""
        raise ValueError(f"`{message.type}` cannot be sent: {reason}")


MAX_MESSAGES = 16384
"""The maximum waiting messages, several times what an agent with the most slots can need."""

_MAX_REASON_BYTES = 123  # RFC 6455, 5.5: a control frame has 125 bytes, two are the code's


class Outbox:
    """The `AgentConnection` of one socket. Sending a frame may take `patience` seconds."""

    def __init__(
        self, socket: web.WebSocketResponse, transport: asyncio.Transport, *, patience: float
    ) -> None:
        self.reason: str | None = None
        self.assembler = Assembler()
        """Joins the pieces of large messages from the agent."""
        self._code = WSCloseCode.GOING_AWAY
        self._socket = socket
        self._transport = transport
        self._patience = patience
        self._queue: FrameQueue[FromBalancer] = FrameQueue(BalancerCodec())
        self._has_work = asyncio.Event()
        transport.set_write_buffer_limits(high=PIECE_BYTES)
        limit_unsent(transport.get_extra_info("socket"))

    def backlog(self) -> AgentBacklog:
        """Return the unsent messages, and the bytes of incomplete messages from the agent."""
        return AgentBacklog(len(self._queue), self._queue.num_bytes + self.assembler.num_bytes)

    def send(self, message: FromBalancer) -> None:
        """Send `message` after all earlier messages about the same request."""
        self._queue.put(message)
        self._has_work.set()
        if len(self._queue) > MAX_MESSAGES:
            self._cut(f"the agent read too slowly: {len(self._queue)} messages were waiting")

    def disconnect(self, reason: str, code: WSCloseCode = WSCloseCode.GOING_AWAY) -> None:
        """Close the socket after all messages have been sent. Only the first `reason` is used."""
        if self.reason is None:
            self.reason, self._code = reason, code
        self._has_work.set()

    async def run(self) -> None:
        """Write messages until all are sent and the socket must be closed."""
        try:
            while self.reason is None or len(self._queue):
                await self._has_work.wait()
                self._has_work.clear()
                await self._flush()
            async with asyncio.timeout(self._patience):
                await self._socket.close(code=self._code, message=_shortened(self.reason))
        except TimeoutError:
            self._cut(f"the agent did not read a frame for {self._patience:g} s")
        except ClientConnectionResetError:
            self.disconnect("the connection was lost")

    async def _flush(self) -> None:
        """Send the waiting messages. The timer is set again only after a slow frame."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        async with asyncio.timeout(self._patience) as timeout:
            while (frame := self._queue.next()) is not None:
                data, is_text = frame
                await self._socket.send_frame(data, WSMsgType.TEXT if is_text else WSMsgType.BINARY)
                if (now := loop.time()) > since:
                    since = now
                    timeout.reschedule(now + self._patience)

    def _cut(self, reason: str) -> None:
        self.disconnect(reason)
        self._queue.clear()
        self._transport.abort()


def _shortened(reason: str) -> bytes:
    return reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()
