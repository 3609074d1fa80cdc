"""One streamed HTTP response; its status is decided when the first chunk arrives.

The events of one request are pushed: each token is rendered and written where it arrives
(`pushing`). A client that reads too slowly makes the transport's buffer fill; then events wait
in the stream and merge until it has drained.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from aiohttp import hdrs, web

from ....shared.inference import Event
from .pushing.event_pusher import EventPusher, Render
from .pushing.text_frame import FrameOf, no_frame

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
) -> web.StreamResponse:
    """Answers 200 once there are bytes to send; what `render` raises before that is raised.

    Where `frame_of` has a frame for a token, `render` is not called for it. A disconnect cancels
    the request, since the connection is lost.
    """
    async for event in stream:
        if first := render(event):
            break
    else:
        raise RuntimeError("a request ended without an answer")
    response = await _begun(request, first, content_type, headers)
    pusher = EventPusher(request, response, render, frame_of)
    await stream.push(pusher.take, request.writer.drain)
    await response.write_eof(pusher.ending)
    return response


async def _begun(
    request: web.Request, first: bytes, content_type: str, headers: Mapping[str, str] | None
) -> web.StreamResponse:
    """The response with its headers and first bytes."""
    response = web.StreamResponse(headers=headers)
    response.headers[hdrs.CONTENT_TYPE] = content_type
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    await response.prepare(request)
    await response.write(first)
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
    wanted = liked.pop(EVENT_STREAM)
    return wanted > 0 and wanted >= max(liked.values())


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
