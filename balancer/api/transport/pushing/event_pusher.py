"""Renders the events of one answer where they arrive, and writes their bytes to the client.

Nearly all are tokens that differ from the one before in their text alone. Such a token is one
precomputed frame around that text. It touches few objects: after the pause between two steps the
processor's caches are cold, and to fetch an object costs more than what is done with it.
"""

from collections.abc import Callable

from aiohttp import hdrs, web
from pydantic_core import to_json

from .....shared.inference import Done, Event, Failed, Token, TokenKind
from .text_frame import FrameOf, TextFrame

Render = Callable[[Event], bytes]
"""The bytes for an event, which may be none. Raises the error that precedes all bytes."""


class EventPusher:
    """Writes past aiohttp's writer, which can only be awaited.

    The bytes of the last event are kept in `ending`, to be written with the response's end.
    """

    __slots__ = (
        "_end",
        "_frame_of",
        "_is_chunked",
        "_keep",
        "_kind",
        "_protocol",
        "_render",
        "_size",
        "_start",
        "_write",
        "ending",
    )

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        render: Render,
        frame_of: FrameOf,
    ) -> None:
        """Raises `ConnectionResetError` where the client has gone."""
        if request.transport is None:
            raise ConnectionResetError("the client has disconnected")
        self.ending = b""
        self._write = request.transport.write
        self._protocol = request.protocol
        self._is_chunked = hdrs.TRANSFER_ENCODING in response.headers
        self._render = render
        self._frame_of = frame_of
        self._kind: TokenKind | None = None
        self._start = self._end = b""
        self._size = 0
        self._keep: Callable[[str], object] | None = None

    def take(self, event: Event) -> bool:
        """Write what `event` renders to; false if there is no room for another."""
        if not isinstance(event, Token):
            self._other(event)
            return not self._protocol.writing_paused
        text, kind, _, log_probs = event
        if kind != self._kind or not text or log_probs:
            self._token(event)
            return not self._protocol.writing_paused
        if self._keep is not None:
            self._keep(text)
        json = to_json(text)
        if self._is_chunked:
            size = self._size + len(json)
            self._write(b"%x\r\n%b%b%b\r\n" % (size, self._start, json, self._end))
        else:
            self._write(b"%b%b%b" % (self._start, json, self._end))
        return not self._protocol.writing_paused

    def _other(self, event: Event) -> None:
        self._kind = None
        data = self._render(event)
        if isinstance(event, Done | Failed):
            self.ending = data
        else:
            self._send(data)

    def _token(self, token: Token) -> None:
        """One that no frame is known for, or that is more than a text."""
        self._kind = None
        self._send(self._render(token))
        if token.text and (frame := self._frame_of(token.kind)) is not None:
            self._use(frame)

    def _use(self, frame: TextFrame) -> None:
        self._kind, self._start, self._end, self._keep = frame
        self._size = len(frame.start) + len(frame.end)

    def _send(self, data: bytes) -> None:
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)
