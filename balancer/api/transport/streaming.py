"""One streamed HTTP response; its status is decided when the first chunk arrives."""

from collections.abc import AsyncIterator, Mapping

from aiohttp import hdrs, web

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
    first = await anext(chunks)
    response = web.StreamResponse(headers=headers)
    response.headers[hdrs.CONTENT_TYPE] = content_type
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    await response.prepare(request)
    await response.write(first)
    async for chunk in chunks:
        await response.write(chunk)
    await response.write_eof()
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
