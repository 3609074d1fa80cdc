"""The OpenAI API over HTTP: `/v1/completions` and `/v1/chat/completions`."""

from collections.abc import AsyncIterator
from functools import partial

from aiohttp import web

from .....shared.errors import RequestError
from .....shared.inference import Done, Event, Failed, Waiting, tier_of
from ....fleet.caller import Caller
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ....fleet.runtime.stream import Stream
from ...common.answering import json_response
from ...common.field_names import FieldNames
from ...common.merge import Merged, open_together
from ...common.opening import opener, waits_of
from ...fields.reading import obeyed
from ...transport.callers import caller_of
from ...transport.http import request_id_key
from ...transport.pushing.event_pusher import Render
from ...transport.streaming import EVENT_STREAM, REQUEST_ID, send_events, send_stream
from .answers import ChunkWriter, Head, error_chunk, whole_answer
from .requests import Wanted, parse_chat, parse_completion
from .shapes import Chat, Completion, Shape


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes under `/v1`."""

    async def chat(request: web.Request) -> web.StreamResponse:
        wanted = await obeyed(request, parse_chat)
        return await _answer(runtime, request, wanted, Chat(has_log_probs=wanted.has_log_probs))

    async def completions(request: web.Request) -> web.StreamResponse:
        wanted = await obeyed(request, parse_completion)
        shape = Completion(
            has_log_probs=wanted.has_log_probs, echoes=wanted.echoes, generates=wanted.generates
        )
        return await _answer(runtime, request, wanted, shape)

    return [
        web.post("/v1/chat/completions", chat),
        web.post("/v1/completions", completions),
    ]


async def _answer(
    runtime: FleetRuntime, request: web.Request, wanted: Wanted, shape: Shape
) -> web.StreamResponse:
    """All choices or none: an error in one choice ends all of them."""
    try:
        return await _answer_all(runtime, request, wanted, shape)
    except RequestError as error:
        raise wanted.field_names.told(error) from error


async def _answer_all(
    runtime: FleetRuntime, request: web.Request, wanted: Wanted, shape: Shape
) -> web.StreamResponse:
    caller = caller_of(request)
    open_one = await opener(request, runtime, tell_waiting=waits_of(request, wanted.stream))
    streams = open_together(open_one, wanted.requests)
    request[request_id_key] = streams[0].id
    if wanted.stream and len(streams) == 1:
        with streams[0] as stream:
            head = _head(runtime, wanted, shape, stream, caller)
            return await _push(request, stream, _writer(shape, head, wanted), wanted.field_names)
    async with Merged(streams) as merged:
        head = _head(runtime, wanted, shape, streams[0], caller)
        headers = {REQUEST_ID: streams[0].id}
        if wanted.stream:
            chunks = _chunks(merged, _writer(shape, head, wanted), wanted.field_names)
            return await send_stream(request, chunks, content_type=EVENT_STREAM, headers=headers)
        answers = await merged.collect(all_or_nothing=True)
        return json_response(
            whole_answer(shape, head, answers, wanted.num_choices), headers=headers
        )


def _head(
    runtime: FleetRuntime, wanted: Wanted, shape: Shape, first: Stream, caller: Caller
) -> Head:
    return Head(
        id=f"{shape.id_prefix}{first.id}",
        created=int(first.created_at),
        model=wanted.model or first.model or runtime.model_name_for("generate", caller),
        service_tier=tier_of(runtime.priority(wanted.requests[0], caller)),
    )


def _writer(shape: Shape, head: Head, wanted: Wanted) -> ChunkWriter:
    return ChunkWriter(
        shape,
        head,
        num_choices=wanted.num_choices,
        include_usage=wanted.include_usage,
        has_running_usage=wanted.has_running_usage,
    )


async def _push(
    request: web.Request, stream: Stream, writer: ChunkWriter, names: FieldNames
) -> web.StreamResponse:
    """A single choice, each token as it comes."""
    return await send_events(
        request,
        stream,
        _rendering(writer, names),
        content_type=EVENT_STREAM,
        headers={REQUEST_ID: stream.id},
        frame_of=partial(writer.frame_of, 0),
    )


def _rendering(writer: ChunkWriter, names: FieldNames) -> Render:
    """Of a single choice. Raises an error that precedes all text, as `_chunks` does."""
    has_begun = False

    def render(event: Event) -> bytes:
        nonlocal has_begun
        if has_begun and isinstance(event, Failed):
            return error_chunk(names.told(event.error))
        chunk = writer.render(0, event)
        if chunk:
            has_begun = True
        return chunk + writer.tail() if isinstance(event, Done) else chunk

    return render


async def _chunks(merged: Merged, writer: ChunkWriter, names: FieldNames) -> AsyncIterator[bytes]:
    """Raises an error that precedes all text, so that it can still be an HTTP status."""
    has_begun = False
    try:
        async for events in merged:
            told = _with_one_comment(events)
            if chunk := b"".join(writer.render(number, event) for number, event in told):
                yield chunk
                has_begun = True
    except RequestError as error:
        if not has_begun:
            raise
        yield error_chunk(names.told(error))
        return
    yield writer.tail()


def _with_one_comment(events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
    """Choices wait together: of what several are told about it, the first is enough."""
    waiting = [each for each in events if isinstance(each[1], Waiting)]
    return [each for each in events if each not in waiting[1:]] if waiting else events
