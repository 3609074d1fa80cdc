"""The Messages API over HTTP: `/v1/messages` and `/v1/messages/count_tokens`.

The headers `anthropic-version`, `anthropic-beta` and `x-api-key` are accepted and have no effect.
Every answer has an id in its headers, and every error also in its body; for a message it is the
request's id.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from aiohttp import web

from ....shared.errors import RequestError
from ....shared.inference import Done, Event, GenerateRequest, RequestId
from ...fleet.runtime.fleet_runtime import FleetRuntime, new_request_id
from ..common.answering import json_response
from ..common.counting import count_tokens
from ..common.event_stream import ServerSentEvents, read_to_end
from ..common.opening import opener, waits_of
from ..common.readable import check_copies
from ..conversation_store import Keeping
from ..conversations import Conversations
from ..fields.reading import obeyed
from ..transport.bodies import BODIES
from ..transport.callers import caller_of
from ..transport.http import error_response
from ..transport.streaming import EVENT_STREAM, REQUEST_ID, send_events
from .answer_types import ContextManaged, CountedMessage, MessageTier
from .conversation.blocks import Json
from .conversation.compaction import summarized
from .editing import Edited, apply_edits
from .errors import anthropic_error, anthropic_status
from .events import MessageEvents
from .options import tier_of
from .requests import (
    FIELD_NAMES,
    ContinueThread,
    Conversation,
    Wanted,
    parse_count,
    parse_messages,
)
from .threads import Thread, stored_thread, unknown_thread

T = TypeVar("T")


def routes(runtime: FleetRuntime, conversations: Conversations) -> list[web.AbstractRouteDef]:
    """The routes under `/v1/messages`; threads are kept in `conversations`."""
    handlers = _Handlers(runtime, conversations)
    return [
        web.post("/v1/messages", handlers.create),
        web.post("/v1/messages/count_tokens", handlers.count),
    ]


def error_answer(error: RequestError, id: RequestId | None = None) -> web.Response:
    """`error` as a response in Anthropic's format; `id` is the request's id, if it has one."""
    given = new_request_id() if id is None else id
    response = error_response(
        error, lambda each: anthropic_error(each, given), status=anthropic_status(error)
    )
    response.headers.update(_headers(given))
    return response


@dataclass(frozen=True, slots=True)
class _Asked:
    """A parsed body, with the conversation of the thread that it continues."""

    wanted: Wanted
    conversation: Conversation
    num_bytes: int
    """Those of all bodies that made the conversation."""


class _Handlers:
    """The handlers of the routes."""

    def __init__(self, runtime: FleetRuntime, conversations: Conversations) -> None:
        self._runtime = runtime
        self._conversations = conversations

    async def create(self, request: web.Request) -> web.StreamResponse:
        id = new_request_id()
        try:
            wanted = await obeyed(request, parse_messages)
            asked = await self._asked(wanted, caller_of(request).owner)
            edited = await self._edited(request, asked)
            return await self._answer(request, asked, edited, id)
        except RequestError as error:
            return error_answer(error, id)

    async def count(self, request: web.Request) -> web.Response:
        wanted = await obeyed(request, parse_count)
        asked = await self._asked(wanted, caller_of(request).owner)
        edited = await self._edited(request, asked)
        num_tokens = edited.num_tokens
        if num_tokens is None:
            num_tokens = await self._count(request, edited.request)
        body: CountedMessage = {"input_tokens": num_tokens}
        if wanted.context_management is not None:
            original = num_tokens if edited.original_tokens is None else edited.original_tokens
            body["context_management"] = {"original_input_tokens": original}
        return json_response(body, headers=_headers(new_request_id()))

    async def _asked(self, wanted: Wanted, owner: str | None) -> _Asked:
        """The body with the thread that it continues. Raises `RequestError`."""
        thread = wanted.thread
        if not isinstance(thread, ContinueThread):
            return _Asked(wanted, wanted.conversation(), wanted.num_bytes)
        id = thread.previous_message_id
        previous = await self._conversations.find(id, Thread, owner=owner)
        if previous is None:
            raise unknown_thread(id)
        num_bytes = previous.num_bytes + wanted.num_bytes
        check_copies(num_bytes, field="thread.previous_message_id")
        return _Asked(wanted, wanted.conversation(previous.conversation), num_bytes)

    async def _edited(self, request: web.Request, asked: _Asked) -> Edited:
        """The request after its context edits. Raises `RequestError`."""
        bodies = request.app[BODIES]
        conversation = asked.conversation

        async def run(work: Callable[[], T]) -> T:
            return await bodies.off_loop(asked.num_bytes, work)

        return await apply_edits(
            conversation.messages,
            asked.wanted.edits,
            run=run,
            build=lambda each: asked.wanted.request(replace(conversation, messages=each)),
            count=lambda shorter: self._count(request, shorter),
        )

    async def _count(self, request: web.Request, wanted: GenerateRequest) -> int:
        return await count_tokens(self._runtime, wanted, FIELD_NAMES, caller=caller_of(request))

    async def _answer(
        self, request: web.Request, asked: _Asked, edited: Edited, id: RequestId
    ) -> web.StreamResponse:
        runtime = self._runtime
        wanted = asked.wanted
        caller = caller_of(request)
        open_stream = await opener(request, runtime, tell_waiting=waits_of(request, wanted.stream))
        with open_stream(edited.request, id) as stream:
            message = _Answer(
                self._conversations,
                asked,
                stream.id,
                owner=caller.owner,
                model=wanted.model or stream.model or runtime.model_name_for("generate", caller),
                tier=tier_of(runtime.priority(edited.request, caller)),
                context=_context(wanted, edited),
            )
            if wanted.stream:
                events = ServerSentEvents(message, FIELD_NAMES)
                return await send_events(
                    request,
                    stream,
                    events,
                    content_type=EVENT_STREAM,
                    headers=_headers(stream.id),
                    frame_of=events.frame_of,
                )
            await read_to_end(stream, message, FIELD_NAMES)
            return json_response(message.message, headers=_headers(stream.id))


class _Answer(MessageEvents):
    """One message while it is generated; its thread is stored if it ends without an error."""

    def __init__(
        self,
        store: Keeping,
        asked: _Asked,
        id: RequestId,
        *,
        owner: str | None,
        model: str,
        tier: MessageTier,
        context: ContextManaged | None,
    ) -> None:
        wanted = asked.wanted
        super().__init__(
            id,
            model=model,
            max_tokens=wanted.max_tokens,
            tier=tier,
            context=context,
            hides_thinking=wanted.hides_thinking,
            summarizes=summarized(asked.conversation.messages) if wanted.is_compaction else None,
        )
        self._store = store
        self._asked = asked
        self._owner = owner

    def take(self, event: Event) -> list[Json]:
        """The API events for `event`."""
        told = super().take(event)
        if isinstance(event, Done) and self._asked.wanted.thread is not None:
            # Stored before the end is sent: the client may continue the thread at once.
            self._keep()
        return told

    def _keep(self) -> None:
        asked = self._asked
        thread = stored_thread(asked.conversation, self.message["content"], asked.num_bytes)
        self._store.keep(self.message["id"], thread, time.monotonic(), owner=self._owner)


def _context(wanted: Wanted, edited: Edited) -> ContextManaged | None:
    return None if wanted.context_management is None else {"applied_edits": edited.applied}


def _headers(id: RequestId) -> dict[str, str]:
    return {"request-id": id, REQUEST_ID: id}
