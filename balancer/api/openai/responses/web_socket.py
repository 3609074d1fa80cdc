"""The Responses API over a WebSocket: responses one after the other, or in several lanes at once.

A response that is not stored can be continued on its own socket, for as long as that is open; so a
client sends what is new of a conversation only. What may go over it is in `socket_events`.
"""

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from .....shared.errors import (
    InternalError,
    InvalidRequest,
    Overloaded,
    RateLimited,
    RequestError,
    Unauthorized,
)
from .....shared.framing.handshake import is_handshake, received
from .....shared.inference import Done, Event, Failed
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ....fleet.runtime.stream import LISTED_LOG_PROB
from ...access.leases import Leases
from ...access.permissions import Needs
from ...conversation_store import DEFAULT_BYTES, ConversationStore, E, Entry
from ...conversations import Conversations
from ...endpoint import opened_of
from ...fields.field_notes import FieldNotes
from ...route import OPENAI, Route
from ...transport.bodies import BODIES, MAX_BODY_BYTES, Bodies, Held, body_too_large
from ...transport.callers import caller_of
from ...transport.connections import watch_frames
from ...transport.fault_reports import FAULT_REPORTS, report_refusal
from ...transport.frame_writer import FrameWriter
from .answer import ResponseAnswer
from .events import response_id
from .requests import ResponsesRequest, parse_response
from .routes import Responses
from .socket_events import (
    AskedResponse,
    Lane,
    ResponseSteer,
    SocketWriting,
    error_frame,
    parse_event,
    steer_refusal,
)

logger = logging.getLogger(__name__)

MAX_LANES = 32
"""Responses of one socket that run at once."""

MAX_WAITING = 64
"""Responses of one socket that wait for those before them in their lanes, all lanes together."""

HEARTBEAT_SECONDS = 30.0
"""A peer that does not answer a ping for half this long is gone."""

FLUSH_SECONDS = 2.0
"""Seconds for a socket to read its last frames when the balancer shuts down."""


class _Everybodys:
    """Responses of this balancer's sockets that are to be stored, which all callers can then reach.

    See `conversations.SharedConversations`.
    """

    def __init__(self, conversations: Conversations, unstored: set[str]) -> None:
        self._conversations = conversations
        self._unstored = unstored

    def put(self, id: str, entry: Any, num_bytes: int, owner: str | None) -> None:
        if id not in self._unstored:
            self._conversations.put(id, entry, time.monotonic(), owner=owner)

    async def written(self, id: str) -> None:
        await self._conversations.written(id)

    async def has(self, id: str, kind: type[Entry], owner: str | None) -> bool:
        if id in self._unstored:
            return True
        return await self._conversations.find(id, kind, owner=owner) is not None

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None:
        return await self._conversations.find(id, kind, owner=owner)

    async def forget(self, id: str, kind: type, owner: str | None) -> bool:
        return await self._conversations.forget(id, kind, owner=owner)


class ResponsesSocket:
    """The endpoint; it tracks its open sockets, to close them at shutdown."""

    def __init__(
        self,
        runtime: FleetRuntime,
        conversations: Conversations,
        bodies: Bodies,
        leases: Leases,
    ) -> None:
        self._runtime = runtime
        self._leases = leases
        self._unstored: set[str] = set()
        """Ids of responses that are not to be stored, of sockets that are open."""
        self._memory = ConversationStore(max_bytes=DEFAULT_BYTES)
        local = Conversations(self._memory, _Everybodys(conversations, self._unstored))
        self._responses = Responses(runtime, local, bodies)
        self._sessions: set[_Session] = set()

    def route(self) -> Route:
        """The socket's route."""
        return Route("GET", "/v1/responses", Needs.CALL, self._serve, OPENAI)

    async def close(self) -> None:
        """Ends every open socket."""
        await asyncio.gather(*(each.retire("shutting down") for each in self._sessions))

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_SECONDS,
            timeout=FLUSH_SECONDS,
            max_msg_size=MAX_BODY_BYTES,
            compress=False,
            decode_text=False,
        )
        if not is_handshake(socket, request):
            raise InvalidRequest(
                "GET /v1/responses is for WebSockets: send an upgrade request, or POST a response"
            )
        tasks = asyncio.TaskGroup()
        with request.app[BODIES].held(caller_of(request)) as held:
            session = _Session(
                self._runtime, self._responses, request, socket, tasks, held, self._unstored
            )
            session.counts_parts = watch_frames(
                request, count=session.count, on_fault=session.faulted
            )
            await socket.prepare(request)
            self._sessions.add(session)
            try:
                with self._leases.lease(self._leases.holder(request), session.dismiss):
                    await session.run()
            finally:
                self._sessions.discard(session)
                for id in session.unstored:
                    self._unstored.discard(id)
                    self._memory.drop(id)
        return socket


class _Session:
    """One open socket: a reader that never waits for answers, and a task for each lane."""

    def __init__(
        self,
        runtime: FleetRuntime,
        responses: Responses,
        request: web.Request,
        socket: web.WebSocketResponse,
        tasks: asyncio.TaskGroup,
        held: Held,
        unstored: set[str],
    ) -> None:
        self.unstored: list[str] = []
        """Ids of its responses that are not stored."""
        self.counts_parts = False
        """Whether `count` is called as parts of messages arrive, and not only for whole ones."""
        self._all_unstored = unstored
        self._runtime = runtime
        self._responses = responses
        self._request = request
        self._bodies = request.app[BODIES]
        self._socket = socket
        self._tasks = tasks
        self._held = held
        self._frames = FrameWriter(request, socket, tasks)
        self._lanes: dict[Lane, deque[tuple[AskedResponse, int]]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._num_waiting = 0
        self._close_reason = (WSCloseCode.OK, "")
        self._is_close_due = asyncio.Event()

    def count(self, num_bytes: int) -> bool:
        """Further bytes of messages are here; whether they may be."""
        try:
            self._held.add(num_bytes)
        except Overloaded as error:
            report_refusal(self._request, error)
            reason = "too many messages and bodies are being read at once"
            self._close_with(WSCloseCode.TRY_AGAIN_LATER, reason)
            return False
        return True

    def faulted(self, reason: str, code: WSCloseCode) -> None:
        """The peer sent frames that no honest one sends."""
        self._close_with(code, reason)

    def dismiss(self, error: Unauthorized) -> None:
        """Its key is no more."""
        self._close_with(WSCloseCode.POLICY_VIOLATION, error.message[:100])

    async def run(self) -> None:
        """Serves the socket until either side closes it."""
        async with self._tasks:
            closer = self._tasks.create_task(self._close_when_due())
            try:
                while await self._read_one(await received(self._socket)):
                    pass
            finally:
                self._frames.stop()
                if not self._is_close_due.is_set():
                    closer.cancel()
                for worker in self._workers:
                    worker.cancel()

    async def retire(self, reason: str) -> None:
        """Sends what is left of responses that have ended, then closes the socket."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                if self._workers:
                    await asyncio.wait(self._workers)
                await self._frames.drained()
        await self._socket.close(code=WSCloseCode.GOING_AWAY, message=reason.encode())

    def _close_with(self, code: WSCloseCode, reason: str) -> None:
        self._close_reason = (code, reason)
        self._is_close_due.set()

    async def _close_when_due(self) -> None:
        await self._is_close_due.wait()
        code, reason = self._close_reason
        await self._socket.close(code=code, message=reason.encode())

    # ---- what the client sends

    async def _read_one(self, message: WSMessage) -> bool:
        """Takes a message; whether another may come."""
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return False
        num_bytes = len(message.data)
        if not self.counts_parts and not self.count(num_bytes):
            return True
        try:
            await self._take(message.data)
        except RequestError as error:
            self._held.give_back(num_bytes)
            report_refusal(self._request, error)
            await self._send([error_frame(error, None)])
        return True

    async def _take(self, message: bytes) -> None:
        """Raises `RequestError`. Bytes of what is taken are held until it is answered."""
        if len(message) > MAX_BODY_BYTES:
            raise body_too_large()
        event = await self._bodies.off_loop(len(message), partial(parse_event, message))
        if isinstance(event, ResponseSteer):
            self._held.give_back(len(message))
            await self._send([steer_refusal(event)])
            return
        if self._num_waiting == MAX_WAITING:
            raise RateLimited(f"a socket may have {MAX_WAITING} responses that wait")
        lane = self._lanes.get(event.lane)
        if lane is None:
            if len(self._lanes) == MAX_LANES:
                raise RateLimited(f"a socket may have {MAX_LANES} responses at once")
            lane = self._lanes[event.lane] = deque()
            worker = self._tasks.create_task(self._work(event.lane, lane))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        lane.append((event, len(message)))
        self._num_waiting += 1

    # ---- what it is answered

    async def _work(self, name: Lane, lane: deque[tuple[AskedResponse, int]]) -> None:
        """Answers all that is asked for in a lane, one after the other."""
        while lane:
            asked, num_bytes = lane.popleft()
            self._num_waiting -= 1
            try:
                await self._answer(asked)
            except RequestError as error:
                report_refusal(self._request, error)
                await self._send([error_frame(error, name)])
            except Exception:  # the boundary of a response: it is logged, and the client told
                logger.exception("unexpected error in a response of a socket")
                ours = InternalError("internal error; the balancer's log has the details")
                await self._send([error_frame(ours, name)])
            finally:
                self._held.give_back(num_bytes)
        del self._lanes[name]

    async def _answer(self, asked: AskedResponse) -> None:
        """Raises an error that precedes all events."""
        requested, notes = await self._parsed(asked.body)
        is_stored, requested.store = requested.store, True
        generation = await self._responses.answer(requested, caller_of(self._request))
        [neutral] = generation.requests
        if not asked.generates:
            neutral = replace(neutral, prefill_only=True)
        try:
            caller = caller_of(self._request)
            stream = self._runtime.open(neutral, caller=caller, kept_log_prob=LISTED_LOG_PROB)
        except RequestError as error:
            raise generation.names.renamed(error) from error
        with stream:
            if not is_stored:
                self.unstored.append(response_id(stream.id))
                self._all_unstored.add(response_id(stream.id))
            answer = generation.rendering(opened_of(self._runtime, caller, generation, stream))
            if not isinstance(answer, ResponseAnswer):
                raise TypeError("a response is written by its answer")
            writing = SocketWriting(answer, asked.lane, notes.names)

            last: list[bytes] = []

            def take(event: Event) -> bool:
                frames = writing.frames(event)
                if isinstance(event, Done | Failed):
                    last.extend(frames)
                    return True
                written = [self._frames.write(frame) for frame in frames]
                return all(written)

            await stream.push(take, self._frames.drained)
            await answer.stored()
            await self._send(last)

    async def _parsed(self, body: bytes) -> tuple[ResponsesRequest, FieldNotes]:
        reports = self._request.app.get(FAULT_REPORTS)
        notes = FieldNotes(is_strict=reports is not None and reports.is_strict)
        try:
            parse = partial(parse_response, body, notes)
            return await self._bodies.off_loop(len(body), parse), notes
        finally:
            if notes.names and reports is not None:
                reports.ignored(self._request, notes.names, notes.labels)

    async def _send(self, frames: list[bytes]) -> None:
        await self._frames.drained()
        for frame in frames:
            self._frames.write(frame)
