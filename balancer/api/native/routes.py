"""The native API over HTTP: one request or a batch, streamed or in one piece.

| path | answer |
| --- | --- |
| `/api/v1/generate` | events; with `"stream": false` one object: `id`, the `done` fields, `text` |
| `/api/v1/generate_batch` | events under the entries' ids, and `batch_done`; or one object |
| `/api/v1/embed`, `…/tokenize`, `…/detokenize`, `…/count_tokens` | see `queries` |

Events are NDJSON, or SSE (data lines only) where `Accept` prefers that. A batch is validated as a
whole; after that, each entry is independent: the answer is 200, entries beyond the free slots wait
in the queue, and an entry that the queue refuses ends with its own error.
"""

import time
from collections.abc import AsyncIterator, Callable

from aiohttp import hdrs, web

from ....shared.inference import Done, EndEvent, Event, Failed
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.runtime.stream import Stream
from ..common.accumulator import Accumulator
from ..common.answering import answer, json_response
from ..common.merge import Merged, open_all, or_refusal
from ..common.opening import opener, waits_of
from ..transport.bodies import parsed
from ..transport.http import Handler, request_id_key
from ..transport.pushing.event_pusher import Render
from ..transport.streaming import (
    EVENT_STREAM,
    NDJSON,
    REQUEST_ID,
    prefers_event_stream,
    send_events,
    send_stream,
)
from ..transport.waiting import events_after
from .batch_statistics import batch_statistics
from .events import (
    NDJSON_LINES,
    SERVER_SENT_EVENTS,
    EventWriter,
    Framing,
    answer_fields,
    batch_done,
)
from .queries import CALLS, QueryCall
from .requests import Batch, parse_batch, parse_generate


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The native API's routes."""

    async def generate(request: web.Request) -> web.StreamResponse:
        wanted = await parsed(request, parse_generate)
        open_one = await opener(request, runtime, tell_waiting=waits_of(request, wanted.stream))
        with open_one(wanted) as stream:
            request[request_id_key] = stream.id
            if wanted.stream:
                return await _stream_one(request, stream)
            return await _answer_one(stream)

    async def generate_batch(request: web.Request) -> web.StreamResponse:
        batch = await parsed(request, parse_batch)
        open_one = await opener(request, runtime, tell_waiting=events_after(batch.stream))
        streams = open_all(or_refusal(open_one), batch.requests)
        async with Merged(streams) as merged:
            if batch.stream:
                return await _stream_batch(request, batch, merged)
            return await _answer_batch(batch, merged)

    return [
        web.post("/api/v1/generate", generate),
        web.post("/api/v1/generate_batch", generate_batch),
        *(web.post(f"/api/v1/{name}", _asking(runtime, parse)) for name, parse in CALLS.items()),
    ]


def _asking(runtime: FleetRuntime, parse: Callable[[bytes], QueryCall]) -> Handler:
    async def ask(request: web.Request) -> web.StreamResponse:
        asking = await parsed(request, parse)
        return await answer(
            request,
            runtime,
            asking.query_request,
            lambda id, results: {"id": id, **asking.answer(results)},
        )

    return ask


async def _answer_one(stream: Stream) -> web.Response:
    accumulator = Accumulator()
    async for event in stream:
        accumulator.add(event)
    accumulator.done()  # raises the error, if there was one, so that it becomes the status
    body = {"id": stream.id, **answer_fields(accumulator)}
    return json_response(body, headers={REQUEST_ID: stream.id})


async def _answer_batch(batch: Batch, merged: Merged) -> web.Response:
    began = time.monotonic()
    answers = await merged.collect()
    statistics = batch_statistics([each.end for each in answers], time.monotonic() - began)
    pairs = zip(batch.ids, answers, strict=True)
    results = [{"id": id, **answer_fields(each)} for id, each in pairs]
    return json_response({"results": results, "statistics": statistics})


async def _stream_one(request: web.Request, stream: Stream) -> web.StreamResponse:
    content_type, framing = _framing(request)
    writer = EventWriter({"id": stream.id}, framing)
    return await send_events(
        request,
        stream,
        _rendering(writer),
        content_type=content_type,
        headers={REQUEST_ID: stream.id},
        frame_of=writer.frame_of,
    )


def _rendering(writer: EventWriter) -> Render:
    """Raises an error that precedes all output, so that it can still be an HTTP status."""
    has_begun = False

    def render(event: Event) -> bytes:
        nonlocal has_begun
        if not has_begun and isinstance(event, Failed):
            raise event.error
        line = writer.render(event)
        has_begun = has_begun or bool(line)
        return line

    return render


async def _stream_batch(request: web.Request, batch: Batch, merged: Merged) -> web.StreamResponse:
    content_type, framing = _framing(request)
    return await send_stream(
        request, _batch_lines(batch, merged, framing), content_type=content_type
    )


async def _batch_lines(batch: Batch, merged: Merged, framing: Framing) -> AsyncIterator[bytes]:
    began = time.monotonic()
    writers = [EventWriter({"id": id}, framing) for id in batch.ids]
    ends: list[EndEvent] = []
    async for events in merged:
        yield b"".join(writers[number].render(event) for number, event in events)
        ends += [event for _, event in events if isinstance(event, Done | Failed)]
    yield batch_done(batch_statistics(ends, time.monotonic() - began), framing)


def _framing(request: web.Request) -> tuple[str, Framing]:
    if prefers_event_stream(",".join(request.headers.getall(hdrs.ACCEPT, []))):
        return EVENT_STREAM, SERVER_SENT_EVENTS
    return NDJSON, NDJSON_LINES
