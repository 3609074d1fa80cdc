"""One streamed HTTP response; its status is decided when the first chunk arrives.

The events of one request are pushed: each token is rendered and written where it arrives. A client
that reads too slowly makes the transport's buffer fill; then events wait in the stream and merge
until it has drained.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from aiohttp import hdrs, web

from ....shared.inference import Done, Event, Failed

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


ENDS = (Done, Failed)

Render = Callable[[Event], bytes]
"""The bytes for an event, which may be none. Raises the error that precedes all bytes."""


async def send_events(
    request: web.Request,
    stream: Events,
    render: Render,
    *,
    content_type: str,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Answers 200 once there are bytes to send; what `render` raises before that is raised.

    A disconnect cancels it, since the connection is lost.
    """
    async for event in stream:
        if first := render(event):
            break
    else:
        raise RuntimeError("a request ended without an answer")
    response = await _begun(request, first, content_type, headers)
    ending = bytearray()
    take = _writing(request, response, render, ending)
    await stream.push(take, request.writer.drain)
    await response.write_eof(bytes(ending))
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


def _writing(
    request: web.Request, response: web.StreamResponse, render: Render, ending: bytearray
) -> Callable[[Event], bool]:
    """Writes an event's bytes past aiohttp's writer, which can only be awaited.

    Those of the last event go to `ending`, to be written together with the response's end.
    """
    protocol, transport = request.protocol, request.transport
    if transport is None:
        raise ConnectionResetError("the client has disconnected")
    write = transport.write
    is_chunked = hdrs.TRANSFER_ENCODING in response.headers

    def take(event: Event) -> bool:
        data = render(event)
        if isinstance(event, ENDS):
            ending.extend(data)
        elif data:
            write(b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data)
        return not protocol.writing_paused

    return take


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
