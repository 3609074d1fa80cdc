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
from collections.abc import AsyncIterator
from functools import partial

from aiohttp import web

from ....shared.inference import Done, EndEvent, Event, Failed, GenerateRequest, TokenKind
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.runtime.stream import PACKED_LOG_PROB
from ..common.accumulator import Accumulator
from ..common.answering import json_response
from ..common.idempotency import OpenStream, idempotency_key, keyed_opener
from ..common.merge import Merged, open_all, or_refusal
from ..common.rendering import Rendering
from ..endpoint import Endpoint, Generation, Opened, Query, handler, preferred
from ..guard import Needs
from ..openapi.document import OF_MODELS, Doc, json_answer, streamed
from ..openapi.schemas import Body, Form
from ..route import Route
from ..transport.bodies import parsed
from ..transport.callers import caller_of
from ..transport.http import Handler
from ..transport.streaming import EVENT_STREAM, NDJSON, send_stream
from ..transport.text_frame import TextFrame
from ..transport.waiting import events_after
from .batch_statistics import batch_statistics
from .events import (
    NDJSON_LINES,
    SERVER_SENT_EVENTS,
    Answer,
    BatchAnswer,
    EventWriter,
    Framing,
    NativeEvent,
    answer_fields,
    batch_done,
)
from .queries import (
    BODIES,
    CALLS,
    CountAnswer,
    DetokenizeAnswer,
    EmbedAnswer,
    QueryCall,
    TokenizeAnswer,
)
from .requests import BATCH_BODY, GENERATE_BODY, RequestBatch, parse_batch, parse_generate


def routes(runtime: FleetRuntime) -> list[Route]:
    """Return the native API's routes."""
    return [
        generate_route(runtime),
        _batch_route(runtime),
        _query_route(runtime, "embed", "Turns texts into vectors.", EmbedAnswer),
        _query_route(runtime, "tokenize", "Turns a text into tokens.", TokenizeAnswer),
        _query_route(runtime, "detokenize", "Turns tokens into a text.", DetokenizeAnswer),
        _query_route(runtime, "count_tokens", "Counts the tokens of a prompt.", CountAnswer),
    ]


def generate_route(runtime: FleetRuntime) -> Route:
    """Return the route `/api/v1/generate`, which both ports serve."""

    endpoint = Endpoint(lambda body, _notes: parse_generate(body), _answer)
    summary = "Answers one prompt or conversation; exactly one of `prompt` and `messages` is given."
    doc = _events_doc("Generate", summary, GENERATE_BODY, Answer)
    return _post("generate", handler(runtime, endpoint), doc)


async def _answer(requested: GenerateRequest, _caller: Caller) -> Generation:
    return Generation(
        requests=[requested],
        is_streamed=requested.stream,
        rendering=_OneAnswer,
        content_types=(NDJSON, EVENT_STREAM),
    )


class _OneAnswer(Rendering):
    """The answer to one request: events under the request's id, or one object."""

    def __init__(self, opened: Opened) -> None:
        self._id = opened.id
        self._writer = EventWriter({"id": opened.id}, _framing(opened.content_type))
        self._gathered = Accumulator()

    def render(self, event: Event, _number: int = 0, /) -> bytes:
        return self._writer.render(event)

    def frame_of(self, kind: TokenKind, /) -> TextFrame | None:
        return self._writer.frame_of(kind)

    def take(self, event: Event, _number: int = 0, /) -> None:
        self._gathered.add(event)

    def whole(self) -> object:
        return {"id": self._id, **answer_fields(self._gathered)}


def _batch_route(runtime: FleetRuntime) -> Route:
    async def generate_batch(request: web.Request) -> web.StreamResponse:
        batch = await parsed(request, parse_batch)
        tell_waiting = events_after(batch.stream)
        open_one: OpenStream
        if (key := idempotency_key(request)) is None:
            open_one = partial(
                runtime.open,
                caller=caller_of(request),
                tell_waiting=tell_waiting,
                kept_log_prob=0 if batch.stream else PACKED_LOG_PROB,
            )
        else:
            open_one = await keyed_opener(request, key, tell_waiting=tell_waiting)
        streams = open_all(or_refusal(open_one), batch.requests)
        async with Merged(streams) as merged:
            if batch.stream:
                return await _stream_batch(request, batch, merged)
            return await _answer_batch(batch, merged)

    summary = "Answers many requests, each under its own id."
    doc = _events_doc("GenerateBatch", summary, BATCH_BODY, BatchAnswer)
    return _post("generate_batch", generate_batch, doc)


def _query_route(runtime: FleetRuntime, name: str, summary: str, form: Form) -> Route:
    async def answer(asking: QueryCall, _caller: Caller) -> Query:
        return Query(asking.query_request, lambda id, results: {"id": id, **asking.answer(results)})

    endpoint = Endpoint(lambda body, _notes: CALLS[name](body), answer)
    title = "".join(word.capitalize() for word in name.split("_"))
    answers = {200: json_answer("The answer.", form)}
    doc = Doc(title, summary, answers, errors=OF_MODELS, body=BODIES[name])
    return _post(name, handler(runtime, endpoint), doc)


def _post(name: str, handler: Handler, doc: Doc) -> Route:
    return Route("POST", f"/api/v1/{name}", Needs.CALL, handler, doc)


def _events_doc(name: str, summary: str, body: Body, whole: Form) -> Doc:
    """Return the description of a call.

    The call has three forms of answer, chosen by `stream` and `Accept`.
    """
    answer = streamed(
        "With `stream`, events, each a line or a `data:` line; otherwise one object.",
        whole,
        NDJSON,
        EVENT_STREAM,
        item=NativeEvent,
    )
    return Doc(name, summary, {200: answer}, errors=OF_MODELS, body=body)


async def _answer_batch(batch: RequestBatch, merged: Merged) -> web.Response:
    began = time.monotonic()
    answers = await merged.collect()
    statistics = batch_statistics([each.end for each in answers], time.monotonic() - began)
    pairs = zip(batch.ids, answers, strict=True)
    results = [{"id": id, **answer_fields(each)} for id, each in pairs]
    return json_response({"results": results, "statistics": statistics})


async def _stream_batch(
    request: web.Request, batch: RequestBatch, merged: Merged
) -> web.StreamResponse:
    content_type = preferred(request, (NDJSON, EVENT_STREAM))
    lines = _batch_lines(batch, merged, _framing(content_type))
    return await send_stream(request, lines, content_type=content_type)


async def _batch_lines(
    batch: RequestBatch, merged: Merged, framing: Framing
) -> AsyncIterator[bytes]:
    began = time.monotonic()
    writers = [EventWriter({"id": id}, framing) for id in batch.ids]
    ends: list[EndEvent] = []
    async for events in merged:
        yield b"".join(writers[number].render(event) for number, event in events)
        ends += [event for _, event in events if isinstance(event, Done | Failed)]
    yield batch_done(batch_statistics(ends, time.monotonic() - began), framing)


def _framing(content_type: str) -> Framing:
    return SERVER_SENT_EVENTS if content_type == EVENT_STREAM else NDJSON_LINES
