"""The server's side of a WebSocket: detects handshakes and receives messages."""

from aiohttp import ClientConnectionResetError, WSMessage, WSMsgType, web


def is_handshake(socket: web.WebSocketResponse, request: web.Request) -> bool:
    """Return whether `request` is a handshake that `socket` can answer, with any headers."""
    try:
        return bool(socket.can_prepare(request))
    except ValueError:
        return False  # aiohttp cannot read, or cannot quote in its refusal, what is no text


async def received(socket: web.WebSocketResponse) -> WSMessage:
    """Return the next message; `CLOSED` if the peer is gone.

    aiohttp answers pings while it receives, and raises an error if the peer of a ping is gone.
    """
    try:
        return await socket.receive()
    except ClientConnectionResetError:
        return WSMessage(WSMsgType.CLOSED, None, None)
