"""The native API over one WebSocket: JSON-RPC 2.0, many requests at once.

| method | params | result |
| --- | --- | --- |
| `generate` | as the body over HTTP | the `done` fields; with `"stream": false` also `text` |
| `generate_batch` | as the body over HTTP | `{"results": […]}`, in order, with the entries' ids |
| `embed`, `tokenize`, … | as the body over HTTP | as over HTTP, without `id` |
| `cancel` | `{"id": …}` (a call's) or `{"all": true}` | `{"cancelled": number of requests}` |
| `authenticate` | `{"key": "ark_…"}` | `{"authenticated": true, "name": …, "role": …}` |
| `ping` | none | `{"pong": true}`, also while streams run |

With a call's `id`, `item` names one request of its batch to `cancel`.

`authenticate` must be the first call of a client that cannot send a key in a header, such as a
browser.

Streamed calls send `event` notifications before their result. `params.id` is the id of the call,
and in a batch `params.item` the id of the entry. `cancel` and `ping` may come without an id and are
then not answered. Every call with an id is answered exactly once, and a bad frame affects no other
call.

A frame over 16 MiB is answered with `request_too_large`; a frame over `MAX_FRAME_BYTES` closes the
socket with code 1009. If all callers, or this caller, have too many bytes of messages and bodies
being read, the socket is closed with code 1013: try again later. A socket with a flood of pings or
of tiny frames is closed with code 1008. Closing the socket cancels its requests.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from aiohttp import WSCloseCode, web

from ....shared.errors import (
    InternalError,
    InvalidRequest,
    RateLimited,
    RequestError,
    Unauthorized,
)
from ....shared.inference import Done, EndEvent, Event, Failed, GenerateRequest, RequestId
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.runtime.stream import PACKED_LOG_PROB, QueryHandle
from ..common.accumulator import Accumulator
from ..common.answering import written
from ..common.merge import EventStream, Merged, open_all, or_refusal
from ..guard import Leases, Needs
from ..openapi.document import AnswerDoc, Doc, ErrorAnswer, json_answer
from ..route import Route
from ..transport.bodies import MAX_BODY_BYTES, Held, body_too_large
from ..transport.fault_reports import report_refusal
from ..transport.sockets import Sockets, SocketSession
from ..transport.streaming import Events
from ..transport.waiting import events_after
from .batch_statistics import batch_statistics
from .events import (
    RPC_NOTIFICATIONS,
    AnswerFields,
    DoneFields,
    EventWriter,
    answer_fields,
    done_fields,
    end_fields,
)
from .queries import CALLS, QueryCall
from .requests import RequestBatch, parse_batch, parse_generate
from .rpc import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Call,
    RpcError,
    RpcId,
    is_id,
    parse_frame,
    request_error,
    result,
    rpc_error,
    written_result,
)
from .socket_key import AUTHENTICATE_TIMEOUT, SocketKey

_METHODS = frozenset({"authenticate", "generate", "generate_batch", "cancel", "ping", *CALLS})
_MAY_BE_NOTIFICATIONS = frozenset({"cancel", "ping"})

Answer = Callable[[], Awaitable[bytes]]

T = TypeVar("T")

_log = logging.getLogger(__name__)


# ---- calls that have not been answered


MAX_LIVE_REQUESTS = 1024
"""Maximum queued and running requests per socket; each entry of a batch counts as one."""


class OpenedCall(Protocol):
    """An opened call: a stream, or a query handle."""

    @property
    def id(self) -> RequestId | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A call that has not been answered. `items` are the batch's ids of its `streams`."""

    streams: Sequence[OpenedCall]
    task: asyncio.Task[None]
    items: Sequence[str] = ()

    def request_ids(self, item: str | None = None) -> list[RequestId]:
        """Return the ids of all requests of the call, or of the batch's request `item`."""
        streams = self.streams
        if item is not None:
            pairs = zip(self.items, self.streams, strict=False)  # without items there are none
            streams = [stream for name, stream in pairs if name == item]
        return [stream.id for stream in streams if stream.id is not None]

    def close(self) -> None:
        # The task may not have begun, so the streams are closed here too.
        self.task.cancel()
        for stream in self.streams:
            stream.close()


class LiveCalls:
    """The calls that have not been answered, by the client's id.

    A call is present from before its first event until its answer is written.
    """

    def __init__(self) -> None:
        self._calls: dict[RpcId, LiveCall] = {}
        self._num_requests = 0

    def __contains__(self, id: object) -> bool:
        return id in self._calls

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that write answers."""
        return [call.task for call in self._calls.values()]

    def add(self, id: RpcId, call: LiveCall) -> None:
        """Add a call."""
        self._calls[id] = call
        self._num_requests += len(call.streams)

    def remove(self, id: RpcId) -> None:
        """Remove a call that was answered."""
        self._num_requests -= len(self._calls.pop(id).streams)

    def close(self) -> None:
        """Cancel all calls, because the socket is closed and their answers cannot be sent."""
        for call in self._calls.values():
            call.close()

    def check_room(self, num_requests: int) -> None:
        """Check that `num_requests` more requests are allowed. Raises `RateLimited`."""
        num_live = self._num_requests
        if num_live + num_requests > MAX_LIVE_REQUESTS:
            raise RateLimited(
                f"a socket may have {MAX_LIVE_REQUESTS} requests at once, {num_live} are running"
            )

    def named(self, params: object) -> list[RequestId]:
        """Return the requests that a `cancel` selects. Raises `InvalidRequest`."""
        match params:
            case {"all": True, **rest} if not rest:
                return [id for live in self._calls.values() for id in live.request_ids()]
            case {"id": id, **rest} if not rest and is_id(id):
                return self._calls[id].request_ids() if id in self._calls else []
            case {"id": id, "item": str(item), **rest} if not rest and is_id(id):
                return self._calls[id].request_ids(item) if id in self._calls else []
            case _:
                raise InvalidRequest(
                    'give either `"id"`, that of a call (and `"item"`, one of its batch), or '
                    '`"all": true`'
                )


# ---- the socket


class NativeSession(SocketSession):
    """One open WebSocket of the native API, with a task for each call."""

    def __init__(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        tasks: asyncio.TaskGroup,
        held: Held,
        *,
        runtime: FleetRuntime,
        leases: Leases,
    ) -> None:
        super().__init__(request, socket, tasks, held)
        self._runtime = runtime
        self._key = SocketKey(request, leases)
        self._live = LiveCalls()

    @property
    def answering(self) -> list[asyncio.Task[None]]:
        return self._live.tasks

    def stop(self) -> None:
        self._key.end()
        self._live.close()

    async def serve(self) -> None:
        """Read until either side closes the socket, or no key comes in time."""
        self._key.begin(self._dismiss)
        if await self._has_key():
            await super().serve()

    async def _has_key(self) -> bool:
        """Return whether the client may call; otherwise close the socket first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AUTHENTICATE_TIMEOUT):
                while self._key.is_awaited and self._key.error is None:
                    if not await self.read_one():
                        return False
        if not self._key.is_awaited:
            return True
        reason = self._key.error or "no key came in time"
        await self.retire(WSCloseCode.POLICY_VIOLATION, str(reason))
        return False

    def _dismiss(self, error: Unauthorized) -> None:
        """Handle the end of the socket's key.

        The fleet has ended its requests; their errors are still sent.
        """
        self._tasks.create_task(self.retire(WSCloseCode.POLICY_VIOLATION, error.message))

    def _refused(self, error: RequestError) -> None:
        report_refusal(self._request, error)

    async def take(self, message: bytes) -> None:
        answer = await self._take(message)
        self._held.give_back(len(message))
        if answer is not None:
            await self.send(answer)

    async def _take(self, frame: bytes) -> bytes | None:
        """Return an immediate answer; `None` if the answer comes later, or is not requested."""
        if len(frame) > MAX_BODY_BYTES:
            self._refused(body_too_large())
            return request_error(None, body_too_large())
        try:
            self._key.check_size(len(frame))
            call = await self._bodies.off_loop(len(frame), partial(parse_frame, frame))
            self._check(call)
        except Unauthorized as error:
            self._refused(error)
            error.forget_frames()
            return request_error(None, error)
        except RpcError as error:
            self._refused(InvalidRequest(error.message))
            return rpc_error(error)
        try:
            answer = await self._begin(call, len(frame))
        except RequestError as error:
            answer = request_error(call.id, error)
            error.forget_frames()
        return None if call.is_notification else answer

    def _check(self, call: Call) -> None:
        if call.is_notification and call.method not in _MAY_BE_NOTIFICATIONS:
            raise RpcError(INVALID_REQUEST, f"`{call.method[:60]}` needs an `id`")
        if call.method not in _METHODS:
            message = (
                f"unknown method `{call.method[:60]}`; there are {', '.join(sorted(_METHODS))}"
            )
            raise RpcError(METHOD_NOT_FOUND, message, id=call.id)
        if not call.is_notification and call.id in self._live:
            raise RpcError(INVALID_REQUEST, f"the id {call.id!r} belongs to a call that still runs")

    async def _begin(self, call: Call, num_bytes: int) -> bytes | None:
        if call.method == "authenticate":
            return result(call.id, await self._authenticate(call))
        self._key.check()
        match call.method:
            case "ping":
                return result(call.id, {"pong": True})
            case "cancel":
                return result(call.id, {"cancelled": self._cancel(call)})
            case "generate":
                self._generate(call, await self._parsed(parse_generate, call, num_bytes))
            case "generate_batch":
                self._generate_batch(call, await self._parsed(parse_batch, call, num_bytes))
            case name:
                self._ask(call, await self._parsed(CALLS[name], call, num_bytes))
        return None

    async def _authenticate(self, call: Call) -> dict[str, object]:
        try:
            shown = await self._key.show(call.params)
        except RequestError as error:
            self._refused(error)
            raise
        self._held.move_to(self._bodies.holder_of(self._key.caller))
        return shown

    def _cancel(self, call: Call) -> int:
        """Cancel requests, and return how many there were."""
        try:
            named = self._live.named(call.params)
        except RequestError as error:
            self._refused(error)
            raise
        return self._runtime.cancel(named)

    async def _parsed(self, parse: Callable[[bytes], T], call: Call, num_bytes: int) -> T:
        try:
            parsed = await self._bodies.off_loop(num_bytes, lambda: parse(call.params_json()))
            self._key.check()
            return parsed
        except RequestError as error:
            self._refused(error)
            raise

    def _ask(self, call: Call, asking: QueryCall) -> None:
        self._check_room(1)
        handle = self._runtime.ask(asking.query_request, caller=self._key.caller)
        self._start(call.id, [handle], partial(answer_query, call.id, asking, handle))

    def _generate(self, call: Call, requested: GenerateRequest) -> None:
        self._check_room(1)
        stream = self._runtime.open(
            requested,
            caller=self._key.caller,
            tell_waiting=events_after(requested.stream),
            kept_log_prob=0 if requested.stream else PACKED_LOG_PROB,
        )
        answer = partial(answer_generate, call.id, requested, stream, self._frames)
        self._start(call.id, [stream], answer)

    def _generate_batch(self, call: Call, batch: RequestBatch) -> None:
        self._check_room(len(batch.requests))
        open_one = partial(
            self._runtime.open,
            caller=self._key.caller,
            tell_waiting=events_after(batch.stream),
            kept_log_prob=0 if batch.stream else PACKED_LOG_PROB,
        )
        streams = open_all(or_refusal(open_one), batch.requests)
        answer = partial(answer_batch, call.id, batch, streams, self._frames)
        self._start(call.id, streams, answer, batch.ids)

    def _check_room(self, num_requests: int) -> None:
        try:
            self._live.check_room(num_requests)
        except RateLimited as error:
            self._refused(error)
            raise

    def _start(
        self, id: RpcId, streams: Sequence[OpenedCall], answer: Answer, items: Sequence[str] = ()
    ) -> None:
        task = self._tasks.create_task(self._finish(id, streams, answer))
        self._live.add(id, LiveCall(streams, task, items))

    async def _finish(self, id: RpcId, streams: Sequence[OpenedCall], answer: Answer) -> None:
        try:
            frame = await answer()
        except Exception:
            _log.exception("unexpected error in call %r of a socket", id)
            error = InternalError("internal error; the balancer's log has the details")
            frame = request_error(id, error)
        finally:
            for stream in streams:
                stream.close()
        await self.send(frame)
        self._live.remove(id)


# ---- answers: events are sent as they arrive, then one answer


class Frames(Protocol):
    """Takes frames; implemented by `sockets.FrameWriter`."""

    def write(self, frame: bytes, /) -> bool:
        """Write one frame. Returns whether another frame can be written at once."""

    async def drained(self) -> None:
        """Wait until another frame can be written."""


async def answer_generate(
    id: RpcId, requested: GenerateRequest, stream: Events, frames: Frames
) -> bytes:
    """Return the answer to `generate`. If the call streams, its events are written first."""
    writer = EventWriter({"id": id}, RPC_NOTIFICATIONS)
    accumulator = Accumulator()

    def take(event: Event) -> bool:
        if not requested.stream or isinstance(event, Done | Failed):
            accumulator.add(event)
            return True
        frame = writer.render(event)
        return not frame or frames.write(frame)

    await stream.push(take, frames.drained)
    if isinstance(accumulator.end, Failed):
        return request_error(id, accumulator.end.error)
    fields = done_fields(accumulator.end) if requested.stream else answer_fields(accumulator)
    return result(id, fields)


async def answer_query(id: RpcId, asking: QueryCall, handle: QueryHandle) -> bytes:
    """Return the answer to a call that takes no slot."""
    try:
        answer = asking.answer(await handle.results())
        return written_result(id, await written(answer))
    except RequestError as error:
        error.forget_frames()
        return request_error(id, error)


async def answer_batch(
    id: RpcId, batch: RequestBatch, streams: list[EventStream], frames: Frames
) -> bytes:
    """Return the answer to `generate_batch`. Its notifications name their request by `item`."""
    began = time.monotonic()
    outcomes: Sequence[DoneFields | AnswerFields | ErrorAnswer]
    async with Merged(streams) as merged:
        if batch.stream:
            ends = await _emit_batch(id, batch, merged, frames)
            outcomes = [end_fields(end) for end in ends]
        else:
            answers = await merged.collect()
            ends = [each.end for each in answers]
            outcomes = [answer_fields(each) for each in answers]
    statistics = batch_statistics(ends, time.monotonic() - began)
    pairs = zip(batch.ids, outcomes, strict=True)
    results = [{"id": item, **outcome} for item, outcome in pairs]
    return result(id, {"results": results, "statistics": statistics})


async def _emit_batch(
    id: RpcId, batch: RequestBatch, merged: Merged, frames: Frames
) -> list[EndEvent]:
    writers = [EventWriter({"id": id, "item": item}, RPC_NOTIFICATIONS) for item in batch.ids]
    ends: dict[int, EndEvent] = {}
    async for events in merged:
        for number, event in events:
            frame = writers[number].render(event)
            if frame and not frames.write(frame):
                await frames.drained()
            if isinstance(event, Done | Failed):
                ends[number] = event
    return [ends[number] for number in range(len(writers))]


MAX_FRAME_BYTES = 2 * MAX_BODY_BYTES


class NativeSocket(Sockets[NativeSession]):
    """The WebSocket endpoint of the native API."""

    def __init__(self, runtime: FleetRuntime, leases: Leases) -> None:
        super().__init__(
            partial(NativeSession, runtime=runtime, leases=leases),
            max_message=MAX_FRAME_BYTES,
            refusal="this path is for WebSockets: send an upgrade request",
        )

    def route(self) -> Route:
        """Return the route of the WebSocket."""
        doc = Doc(
            "Socket",
            "A WebSocket that speaks JSON-RPC 2.0 and carries many requests at once.",
            {
                101: AnswerDoc("The WebSocket is open."),
                400: json_answer("This is no upgrade request.", ErrorAnswer),
            },
        )
        return Route("GET", "/api/v1/socket", Needs.FIRST_FRAME, self.serve, doc)
