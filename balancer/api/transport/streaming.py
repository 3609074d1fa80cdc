"""One streamed HTTP response; its status is decided when the first chunk arrives.

The events of one request are pushed: each token is rendered and written where it arrives. A
client that reads too slowly makes the transport's buffer fill; then events wait in the stream and
merge until it has drained.
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
    """Answers 200 once `chunks` yields its first chunk; errors before that are raised.

    Each chunk is one write. A disconnect ends it without an error.
    """
    response = await _begun(request, await anext(chunks), content_type, headers)
    async for chunk in chunks:
        await response.write(chunk)
    await response.write_eof()
    return response


# ---- the events of one answer


Render = Callable[[Event], bytes]
"""The bytes for an event, which may be none. Raises the error that precedes all bytes."""


class Events(Protocol):
    """One request's events: `fleet.runtime.stream.Stream`."""

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
    """Answers 200 once there are bytes to send; what `render` raises before that is raised.

    Where `frame_of` has a frame for a token, `render` is not called for it. The bytes of the last
    event are sent when what `stored` returns has been waited for. A disconnect cancels the request,
    since the connection is lost.
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
    """Renders the events of one answer where they arrive, and writes their bytes to the client.

    Nearly all are tokens that differ from the one before in their text alone. Such a token is one
    precomputed frame around that text. It touches few objects: after the pause between two steps
    the processor's caches are cold, and to fetch an object costs more than what is done with it.

    It writes past aiohttp's writer, which can only be awaited.

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
        if isinstance(event, (Done, Failed)):
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


# ---- the head of a response


async def _begun(
    request: web.Request, first: bytes, content_type: str, headers: Mapping[str, str] | None
) -> web.StreamResponse:
    """The response with its headers and first bytes."""
    response = await begin_stream(request, content_type, headers)
    await response.write(first)
    return response


async def begin_stream(
    request: web.Request,
    content_type: str = f"{EVENT_STREAM}; charset=utf-8",
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """A response whose headers are sent, and which no cache and no proxy holds back."""
    own = {
        hdrs.CONTENT_TYPE: content_type,
        hdrs.CACHE_CONTROL: "no-store",
        "X-Accel-Buffering": "no",
    }
    response = web.StreamResponse(headers={**(headers or {}), **own})
    await response.prepare(request)
    return response


def prefers_event_stream(accept: str) -> bool:
    """Whether an `Accept` header prefers SSE to the other types offered here.

    Only explicit types count, since clients send `*/*` by default.
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
