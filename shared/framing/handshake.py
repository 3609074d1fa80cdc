"""A WebSocket of a server: whether a request asks for one, and what arrives on it."""

from aiohttp import ClientConnectionResetError, WSMessage, WSMsgType, web


def is_handshake(socket: web.WebSocketResponse, request: web.Request) -> bool:
    """Whether `socket` can be prepared for `request`, whatever bytes its headers have."""
    try:
        return bool(socket.can_prepare(request))
    except ValueError:
        return False  # aiohttp cannot read, or cannot quote in its refusal, what is no text


async def received(socket: web.WebSocketResponse) -> WSMessage:
    """The next message. Where the peer is gone, that is `CLOSED` and no error.

    aiohttp answers pings in here, and raises if the one that sent them cannot be answered any more.
    """
    try:
        return await socket.receive()
    except ClientConnectionResetError:
        return WSMessage(WSMsgType.CLOSED, None, None)
