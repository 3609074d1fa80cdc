"""Whether a request asks for a WebSocket."""

from aiohttp import web


def is_handshake(socket: web.WebSocketResponse, request: web.Request) -> bool:
    """Whether `socket` can be prepared for `request`, whatever bytes its headers have."""
    try:
        return bool(socket.can_prepare(request))
    except ValueError:
        return False  # aiohttp cannot read, or cannot quote in its refusal, what is no text
