"""The Responses API over a WebSocket: responses one after the other, or in several lanes at once.

A response that is not stored can be continued on its own socket until the socket closes. So a
client sends only the new part of a conversation. `socket_events` describes the events.
"""

import asyncio
import logging
import time
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import WSCloseCode, web

from .....shared.errors import (
    InternalError,
    RateLimited,
    RequestError,
    Unauthorized,
)
from .....shared.inference import Done, Event, Failed
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ....fleet.runtime.stream import LISTED_LOG_PROB
from ...conversation_store import DEFAULT_BYTES, ConversationStore, E, Entry
from ...conversations import Conversations
from ...endpoint import opened_of
from ...fields.field_table import FieldNotes
from ...guard import Leases, Needs
from ...route import OPENAI, Route
from ...transport.bodies import MAX_BODY_BYTES, Bodies, Held, body_too_large
from ...transport.callers import caller_of
from ...transport.fault_reports import FAULT_REPORTS, report_refusal
from ...transport.sockets import Sockets, SocketSession
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
"""Maximum responses of one socket that run at once."""

MAX_WAITING = 64
"""Maximum responses of one socket that wait for earlier responses, over all its lanes."""


class _Everybodys:
    """The responses of this balancer's sockets in the common store, which other callers can reach.

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


class ResponsesSocket(Sockets["_Session"]):
    """The WebSocket endpoint of the Responses API."""

    def __init__(
        self,
        runtime: FleetRuntime,
        conversations: Conversations,
        bodies: Bodies,
        leases: Leases,
    ) -> None:
        unstored: set[str] = set()
        memory = ConversationStore(max_bytes=DEFAULT_BYTES)
        local = Conversations(memory, _Everybodys(conversations, unstored))
        responses = Responses(runtime, local, bodies)
        super().__init__(
            partial(
                _Session,
                runtime=runtime,
                responses=responses,
                leases=leases,
                memory=memory,
                all_unstored=unstored,
            ),
            max_message=MAX_BODY_BYTES,
            refusal="GET /v1/responses is for WebSockets: send an upgrade request, or POST a "
            "response",
        )

    def route(self) -> Route:
        """Return the route of the WebSocket."""
        return Route("GET", "/v1/responses", Needs.CALL, self.serve, OPENAI)


class _Session(SocketSession):
    """One open WebSocket, with a task for each lane."""

    def __init__(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        tasks: asyncio.TaskGroup,
        held: Held,
        *,
        runtime: FleetRuntime,
        responses: Responses,
        leases: Leases,
        memory: ConversationStore,
        all_unstored: set[str],
    ) -> None:
        """Prepare. `all_unstored` has the ids of responses that are not stored, of all open
        sockets.
        """
        super().__init__(request, socket, tasks, held)
        self._runtime = runtime
        self._responses = responses
        self._leases = leases
        self._memory = memory
        self._all_unstored = all_unstored
        self._unstored: list[str] = []
        """The ids of this socket's responses that are not stored."""
        self._lanes: dict[Lane, deque[tuple[AskedResponse, int]]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._num_waiting = 0

    @property
    def answering(self) -> set[asyncio.Task[None]]:
        return self._workers

    def stop(self) -> None:
        for worker in self._workers:
            worker.cancel()

    async def run(self) -> None:
        """Serve the socket. Responses that are not stored are dropped at the end."""
        try:
            await super().run()
        finally:
            for id in self._unstored:
                self._all_unstored.discard(id)
                self._memory.drop(id)

    async def serve(self) -> None:
        """Read until either side closes the socket, or its key ends."""
        with self._leases.lease(self._leases.holder(self._request), self._dismiss):
            await super().serve()

    def _dismiss(self, error: Unauthorized) -> None:
        self.close_with(WSCloseCode.POLICY_VIOLATION, error.message[:100])

    # ---- what the client sends

    async def take(self, message: bytes) -> None:
        try:
            await self._take(message)
        except RequestError as error:
            self._held.give_back(len(message))
            report_refusal(self._request, error)
            error.forget_frames()
            await self.send(error_frame(error, None))

    async def _take(self, message: bytes) -> None:
        """Take an event, and count its bytes until it is answered. Raises `RequestError`."""
        if len(message) > MAX_BODY_BYTES:
            raise body_too_large()
        event = await self._bodies.off_loop(len(message), partial(parse_event, message))
        if isinstance(event, ResponseSteer):
            self._held.give_back(len(message))
            await self.send(steer_refusal(event))
            return
        if self._num_waiting == MAX_WAITING:
            raise RateLimited(f"a WebSocket may have at most {MAX_WAITING} waiting responses")
        lane = self._lanes.get(event.lane)
        if lane is None:
            if len(self._lanes) == MAX_LANES:
                raise RateLimited(f"a WebSocket may have at most {MAX_LANES} responses at once")
            lane = self._lanes[event.lane] = deque()
            worker = self._tasks.create_task(self._work(event.lane, lane))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        lane.append((event, len(message)))
        self._num_waiting += 1

    # ---- what it is answered

    async def _work(self, name: Lane, lane: deque[tuple[AskedResponse, int]]) -> None:
        """Answer the events of one lane, one after the other."""
        while lane:
            asked, num_bytes = lane.popleft()
            self._num_waiting -= 1
            try:
                await self._answer(asked)
            except RequestError as error:
                report_refusal(self._request, error)
                error.forget_frames()
                await self.send(error_frame(error, name))
            except Exception:  # the boundary of a response: it is logged, and the client told
                logger.exception("unexpected error in a response over a WebSocket")
                ours = InternalError("internal error; the balancer's log has the details")
                await self.send(error_frame(ours, name))
            finally:
                self._held.give_back(num_bytes)
        del self._lanes[name]

    async def _answer(self, asked: AskedResponse) -> None:
        """Answer one event. Raises an error that occurs before the first event is sent."""
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
                self._unstored.append(response_id(stream.id))
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
            await self.send(*last)

    async def _parsed(self, body: bytes) -> tuple[ResponsesRequest, FieldNotes]:
        reports = self._request.app.get(FAULT_REPORTS)
        notes = FieldNotes(is_strict=reports is not None and reports.is_strict)
        try:
            parse = partial(parse_response, body, notes)
            return await self._bodies.off_loop(len(body), parse), notes
        finally:
            if notes.names and reports is not None:
                reports.ignored(self._request, notes.names, notes.labels)
