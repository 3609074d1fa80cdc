"""The common part of all inference endpoints: parse the body, start the request, send the answer.

An API declares for each endpoint a function that parses the body (`parse`) and a function that
makes the answer (`answer`). This module uses them for HTTP requests (`handler`) and for the lines
of batches (`collected`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Generic, TypeVar

from aiohttp import hdrs, web
from pydantic_core import to_json

from ...shared.errors import RequestError
from ...shared.inference import Done, Event, Failed, GenerateRequest, Reading, RequestId, Waiting
from ...shared.queries import Result
from ..fleet.caller import Caller
from ..fleet.queries.query import QueryRequest
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.runtime.stream import PACKED_LOG_PROB, Stream
from .common.answering import json_response, written
from .common.body_fields import SAME_NAMES, FieldNames
from .common.idempotency import OpenStream, idempotency_key, keyed_opener
from .common.merge import Merged, open_all
from .common.rendering import Rendering
from .fields.field_table import FieldNotes
from .transport.bodies import parsed
from .transport.callers import caller_of
from .transport.defaults import EARLY_HEADERS
from .transport.fault_reports import FAULT_REPORTS, RefusalReport
from .transport.http import Handler, request_id_key
from .transport.streaming import (
    EVENT_STREAM,
    REQUEST_ID,
    prefers_event_stream,
    send_events,
    send_stream,
)

W = TypeVar("W")

IGNORED_HEADER = "X-Arriero-Ignored"

_ignored = web.RequestKey("_ignored", str)

EARLY_HEADERS_KEY = web.AppKey("EARLY_HEADERS", float)
"""App key of the seconds after which a stream begins although its request still waits."""

# ---- what answers a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Facts about an answer whose requests were accepted.

    `id` and `created_at` (in seconds since 1970) belong to the first request. `model` is the name
    of the serving model, `priority` the priority class, and `content_type` the type of the stream.
    """

    id: RequestId
    created_at: float
    model: str
    priority: int | None
    content_type: str = EVENT_STREAM


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Requests whose events become one answer; the first error of a request ends the answer.

    `names` translates field names in errors. The type of a streamed answer is the type of
    `content_types` that the client prefers. With `tells_waiting` a waiting client is sent its
    place in the queue. With `tells_progress` it is also sent how much of its prompt was read, from
    the first second on. The id of the answer is in the header `X-Request-Id`, and in `id_headers`.
    """

    requests: Sequence[GenerateRequest]
    is_streamed: bool
    rendering: Callable[[Opened], Rendering]
    names: FieldNames = SAME_NAMES
    content_types: tuple[str, ...] = (EVENT_STREAM,)
    tells_waiting: bool = True
    tells_progress: bool = False
    id_headers: tuple[str, ...] = ()
    kept_log_prob: int = 0

    def kept(self, *, is_streamed: bool) -> int:
        """Return the bytes of a log-probability in a kept answer; 0 if no answer is kept."""
        return max(self.kept_log_prob, 0 if is_streamed else PACKED_LOG_PROB)


@dataclass(frozen=True, slots=True)
class Query:
    """A call that takes no slot.

    `shape` makes the body of the answer from its id and the results.
    """

    request: QueryRequest
    shape: Callable[[str, Sequence[Result]], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """An answer that needs no agent."""

    body: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Generation | Query | KnownAnswer


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[W]):
    """One call of an API. `parse` also notes ignored fields.

    Both functions raise `RequestError`.
    """

    parse: Callable[[bytes, FieldNotes | None], W]
    answer: Callable[[W, Caller], Awaitable[Answer]]


# ---- over HTTP


def handler(runtime: FleetRuntime, endpoint: Endpoint[W]) -> Handler:
    """Return a handler that answers requests to `endpoint`."""

    async def handle(request: web.Request) -> web.StreamResponse:
        requested = await obeyed(request, endpoint.parse)
        with RefusalReport(request):
            answer = await endpoint.answer(requested, caller_of(request))
        return await respond(request, runtime, answer)

    return handle


async def obeyed(request: web.Request, parse: Callable[[bytes, FieldNotes], W]) -> W:
    """Return the body of `request`, parsed by `parse`. The response will report ignored fields.

    Raises the errors of `transport.bodies.parsed`.
    """
    reports = request.app.get(FAULT_REPORTS)
    notes = FieldNotes(is_strict=reports is not None and reports.is_strict)
    try:
        return await parsed(request, lambda body: parse(body, notes))
    finally:
        if notes.names:
            request[_ignored] = notes.header
        if notes.names and reports is not None:
            reports.ignored(request, notes.names, notes.labels)


async def tell_ignored(request: web.Request, response: web.StreamResponse) -> None:
    """Set the header with ignored fields, on errors too.

    Use this as a handler of an app's `on_response_prepare`.
    """
    if _ignored in request:
        response.headers[IGNORED_HEADER] = request[_ignored]


async def respond(
    request: web.Request, runtime: FleetRuntime, answer: Answer
) -> web.StreamResponse:
    """Return the response to `request`.

    Raises an error that occurs before the first byte is sent.
    """
    match answer:
        case Generation():
            with _Renaming(answer.names):
                return await _generated(request, runtime, answer)
        case Query():
            return await _queried(request, runtime, answer)
        case KnownAnswer():
            body, headers = await written(answer.body), answer.headers
            return web.Response(body=body, content_type="application/json", headers=headers)


async def _generated(
    request: web.Request, runtime: FleetRuntime, generation: Generation
) -> web.StreamResponse:
    caller = caller_of(request)
    tell_waiting = waits_of(request, generation.is_streamed and generation.tells_waiting)
    if tell_waiting is not None and generation.tells_progress:
        tell_waiting = 0.0
    open_one: OpenStream
    if (key := idempotency_key(request)) is None:
        open_one = partial(
            runtime.open,
            caller=caller,
            tell_waiting=tell_waiting,
            kept_log_prob=generation.kept(is_streamed=generation.is_streamed),
        )
    else:
        open_one = await keyed_opener(request, key, tell_waiting=tell_waiting)
        caller = caller_of(request)  # its key may have ended meanwhile
    drawn = request.get(request_id_key)
    streams = _opened(open_one, generation.requests, None if drawn is None else RequestId(drawn))
    try:
        id = request[request_id_key] = streams[0].id
        content_type = preferred(request, generation.content_types)
        opened = opened_of(runtime, caller, generation, streams[0], content_type)
        rendering = generation.rendering(opened)
        headers = dict.fromkeys((REQUEST_ID, *generation.id_headers), id)
        if not generation.is_streamed:
            return await _sent(request, await _whole(streams, rendering), headers)
        write = _Writing(rendering, generation.names, len(streams))
        if len(streams) == 1:
            return await send_events(
                request,
                streams[0],
                write,
                content_type=content_type,
                headers=headers,
                frame_of=rendering.frame_of,
                stored=rendering.stored,
            )
        async with Merged(streams) as merged:
            chunks = _chunks(merged, write)
            return await send_stream(request, chunks, content_type=content_type, headers=headers)
    finally:
        _close(streams)


async def _sent(
    request: web.Request, body: object, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send `body` and return the response.

    The body counts as memory until the client has read nearly all of it.
    """
    response = json_response(body, headers=headers)
    await response.prepare(request)
    await response.write_eof()
    return response


def waits_of(request: web.Request, is_streamed: bool) -> float | None:
    """Return the seconds after which a waiting client is sent its place; `None` stands for never.

    The first progress begins the response. A later error is then an event, because the HTTP status
    was sent. So the first progress comes late, but early enough for proxies that cut silent
    connections. A client that wants it earlier sends `Prefer: wait=SECONDS` (RFC 7240). It cannot
    have it later.
    """
    if not is_streamed:
        return None
    early_headers = request.app.get(EARLY_HEADERS_KEY, EARLY_HEADERS)
    return min([early_headers, *_preferred(request.headers.getall("Prefer", []))])


def _preferred(preferences: Iterable[str]) -> Iterable[float]:
    """Yield the seconds of each `wait` that is a whole number; other preferences are unknown."""
    for preference in ",".join(preferences).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        seconds = value.strip().strip('"')
        if name.strip().lower() == "wait" and seconds.isascii() and seconds.isdigit():
            yield float(seconds[:9])


async def _queried(request: web.Request, runtime: FleetRuntime, query: Query) -> web.Response:
    def accepted(id: RequestId) -> None:
        request[request_id_key] = id

    id, body = await _asked(runtime, caller_of(request), query, accepted)
    return web.Response(body=body, content_type="application/json", headers={REQUEST_ID: id})


def preferred(request: web.Request, content_types: tuple[str, ...]) -> str:
    """Return the content type that the client prefers; without a preference, the first."""
    accept = request.headers.getall(hdrs.ACCEPT, ()) if len(content_types) > 1 else ()
    prefers_events = bool(accept) and prefers_event_stream(",".join(accept))
    return EVENT_STREAM if prefers_events else content_types[0]


# ---- within the process


async def collected(
    runtime: FleetRuntime, caller: Caller, answer: Answer
) -> tuple[RequestId | None, bytes]:
    """Return the id of the answer, if it has one, and the whole answer as JSON.

    Raises the answer's `RequestError`.
    """
    if isinstance(answer, KnownAnswer):
        return None, await written(answer.body)
    if isinstance(answer, Query):
        return await _asked(runtime, caller, answer, lambda _id: None)
    with _Renaming(answer.names):
        kept = answer.kept(is_streamed=False)
        open_one = partial(runtime.open, caller=caller, kept_log_prob=kept)
        streams = _opened(open_one, answer.requests)
        try:
            rendering = answer.rendering(opened_of(runtime, caller, answer, streams[0]))
            return streams[0].id, to_json(await _whole(streams, rendering))
        finally:
            _close(streams)


# ---- both


class _Renaming:
    """A context in which raised errors get the client's field names."""

    __slots__ = ("_names",)

    def __init__(self, names: FieldNames) -> None:
        self._names = names

    def __enter__(self) -> None:
        """Enter the boundary."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RequestError):
            renamed = self._names.renamed(error)
            if renamed is not error:
                raise renamed from error


def _opened(
    open_one: OpenStream, requests: Sequence[GenerateRequest], id: RequestId | None = None
) -> list[Stream]:
    """Open a stream for each request. If the caller's limits do not allow all, open none.

    A single request gets the `id`.
    """
    if len(requests) == 1:
        return [open_one(requests[0], id)]
    left = count(len(requests), -1)
    return open_all(lambda request: open_one(request, together=next(left)), requests)


def _close(streams: Sequence[Stream]) -> None:
    for stream in streams:
        stream.close()


def opened_of(
    runtime: FleetRuntime,
    caller: Caller,
    generation: Generation,
    first: Stream,
    content_type: str = EVENT_STREAM,
) -> Opened:
    """Return the facts of the answer to `generation`.

    `first` is the stream of its first request.
    """
    request = generation.requests[0]
    return Opened(
        id=first.id,
        created_at=first.created_at,
        model=request.model or first.model or runtime.views.model_name_for("generate", caller),
        priority=runtime.views.priority(request, caller),
        content_type=content_type,
    )


async def _whole(streams: Sequence[Stream], rendering: Rendering) -> object:
    async with Merged(streams) as merged:
        async for events in merged:
            for number, event in events:
                if isinstance(event, Failed):
                    raise event.error
                rendering.take(event, number)
    if (storing := rendering.stored()) is not None:
        await storing
    return rendering.whole()


async def _asked(
    runtime: FleetRuntime, caller: Caller, query: Query, accepted: Callable[[RequestId], None]
) -> tuple[RequestId, bytes]:
    with runtime.ask(query.request, caller=caller) as handle:
        accepted(handle.id)
        results = await handle.results()
    return handle.id, await written(query.shape(handle.id, results))


class _Writing:
    """The bytes of a stream.

    An error before the first byte is raised, so that it becomes a status.
    """

    def __init__(self, rendering: Rendering, names: FieldNames, num_requests: int) -> None:
        self._rendering = rendering
        self._names = names
        self._num_running = num_requests
        self._has_begun = False

    def __call__(self, event: Event, number: int = 0) -> bytes:
        if isinstance(event, Failed):
            if not self._has_begun:
                raise event.error
            event = Failed(self._names.renamed(event.error))
        data = self._rendering.render(event, number)
        if isinstance(event, Done):
            self._num_running -= 1
            if not self._num_running:
                data += self._rendering.tail()
        self._has_begun = self._has_begun or bool(data)
        return data


async def _chunks(merged: Merged, write: _Writing) -> AsyncIterator[bytes]:
    """Yield the bytes of the answer until the end or the first error.

    Raises an error before the first byte.
    """
    async for events in merged:
        for number, event in events:
            if isinstance(event, Failed):
                yield write(event, number)
                return
        if chunk := b"".join(write(event, number) for number, event in _with_one_wait(events)):
            yield chunk


def _with_one_wait(events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
    """Keep only the first of several waiting events: the requests of one answer wait together."""
    waits = [each for each in events if isinstance(each[1], Waiting | Reading)]
    return [each for each in events if each not in waits[1:]] if waits else events
