"""One streamed HTTP response. Its status is decided when the first chunk arrives.

The events of a request are pushed: each token is rendered and written as it arrives. If a client
reads too slowly, the transport's buffer fills. Events then wait in the stream and merge until the
buffer has drained.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from aiohttp import hdrs, web
from pydantic_core import to_json

from ....shared.inference import Done, Event, Failed, Token, TokenKind
from .text_frame import FrameOf, TextFrame, no_frame

NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
REQUEST_ID = "X-Request-Id"


async def send_stream(
    request: web.Request,
    chunks: AsyncIterator[bytes],
    *,
    content_type: str,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Answer 200 once `chunks` yields its first chunk; errors before that are raised.

    Each chunk is one write. A disconnect ends the stream without an error.
    """
    response = await _begun(request, await anext(chunks), content_type, headers)
    async for chunk in chunks:
        await response.write(chunk)
    await response.write_eof()
    return response


# ---- the events of one answer


Render = Callable[[Event], bytes]
"""Returns the bytes for an event, possibly none. Raises an error that comes before all bytes."""


class Events(Protocol):
    """The events of one request, in the form of `fleet.runtime.stream.Stream`."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def push(
        self, take: Callable[[Event], bool], drained: Callable[[], Awaitable[None]]
    ) -> None: ...


async def send_events(
    request: web.Request,
    stream: Events,
    render: Render,
    *,
    content_type: str,
    headers: Mapping[str, str] | None = None,
    frame_of: FrameOf = no_frame,
    stored: Callable[[], Awaitable[None] | None] = lambda: None,
) -> web.StreamResponse:
    """Answer 200 once there are bytes to send; earlier errors of `render` are raised.

    If `frame_of` has a frame for a token, `render` is not called for it. The bytes of the last
    event are sent after waiting for the future that `stored` returns. A disconnect cancels the
    request.
    """
    async for event in stream:
        if first := render(event):
            break
    else:
        raise RuntimeError("a request ended without an answer")
    if isinstance(event, Done) and (storing := stored()) is not None:
        await storing
    response = await _begun(request, first, content_type, headers)
    pusher = EventPusher(request, response, render, frame_of)
    await stream.push(pusher.take, request.writer.drain)
    if not isinstance(event, Done) and (storing := stored()) is not None:
        await storing
    await response.write_eof(pusher.ending)
    return response


class EventPusher:
    """Renders the events of one answer as they arrive, and writes their bytes to the client.

    Nearly all events are tokens that differ only in their text. Such a token is written as one
    precomputed frame around the text. This touches few objects: between two steps the processor's
    caches get cold, and fetching an object then costs more than using it.

    Bytes are not written through aiohttp's writer, which can only be awaited. The bytes of the last
    event stay in `ending`, to be written with the response's end.
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
        """Prepare. Raises `ConnectionResetError` if the client has disconnected."""
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
        """Render and write `event`. Returns false if no further bytes can be written now."""
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
        if isinstance(event, (Done, Failed)):
            self.ending = data
        else:
            self._send(data)

    def _token(self, token: Token) -> None:
        """Write a token that has no known frame, or has other content than text."""
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


# ---- the head of a response


async def _begun(
    request: web.Request, first: bytes, content_type: str, headers: Mapping[str, str] | None
) -> web.StreamResponse:
    """Return the response after sending its headers and first bytes."""
    response = await begin_stream(request, content_type, headers)
    await response.write(first)
    return response


async def begin_stream(
    request: web.Request,
    content_type: str = f"{EVENT_STREAM}; charset=utf-8",
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Return a response whose headers are sent, and which no cache and no proxy holds back."""
    own = {
        hdrs.CONTENT_TYPE: content_type,
        hdrs.CACHE_CONTROL: "no-store",
        "X-Accel-Buffering": "no",
    }
    response = web.StreamResponse(headers={**(headers or {}), **own})
    await response.prepare(request)
    return response


def prefers_event_stream(accept: str) -> bool:
    """Return whether an `Accept` header prefers SSE to the other offered types.

    Only explicit types count, because clients send `*/*` by default.
    """
    liked = {EVENT_STREAM: 0.0, NDJSON: 0.0, "application/json": 0.0}
    for entry in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in entry.split(";"))
        if media_type in liked:
            liked[media_type] = _quality(parameters)
    quality = liked.pop(EVENT_STREAM)
    return quality > 0 and quality >= max(liked.values())


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
