"""The Messages API over HTTP: `/v1/messages` and `/v1/messages/count_tokens`.

The headers `anthropic-version`, `anthropic-beta` and `x-api-key` are accepted; the first two have
no effect. Every answer has a request id in its headers, and every error also in its body. For a
message it is the id of the neutral request.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NotRequired, Protocol, TypeVar

from aiohttp import web
from typing_extensions import TypedDict

from ....shared.errors import RequestError
from ....shared.inference import Count, Done, Event, GenerateRequest, RequestId
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime, new_request_id
from ..common.counting import count_tokens
from ..common.request_checks import check_copies
from ..conversations import Conversations
from ..endpoint import Endpoint, Generation, KnownAnswer, Opened, handler
from ..guard import Needs
from ..route import ANTHROPIC, Route
from ..transport.bodies import Bodies
from ..transport.http import Handler, error_response, request_id_key
from ..transport.streaming import REQUEST_ID
from .context_edits import AppliedEdit, Edit
from .conversation.blocks import Json, Message
from .conversation.compaction import summarized
from .errors import anthropic_error, anthropic_status
from .events import ContextManaged, MessageEvents
from .options import tier_of
from .requests import (
    FIELD_NAMES,
    ContinueThread,
    MessagesInput,
    MessagesRequest,
    parse_count,
    parse_messages,
)
from .threads import Thread, stored_thread, unknown_thread


class OriginalCount(TypedDict):
    """The number of input tokens without context edits."""

    original_input_tokens: Count


class CountedMessage(TypedDict):
    """The number of a message's input tokens."""

    input_tokens: Count
    context_management: NotRequired[OriginalCount]


T = TypeVar("T")

ID_HEADER = "request-id"
"""The header in which Anthropic's clients look for an answer's id."""


def routes(runtime: FleetRuntime, conversations: Conversations, bodies: Bodies) -> list[Route]:
    """Return the routes under `/v1/messages`; threads are stored in `conversations`."""
    messages = _Messages(runtime, conversations, bodies)
    create = _with_id(handler(runtime, Endpoint(parse_messages, messages.answer)))
    count = handler(runtime, Endpoint(parse_count, messages.count))
    return [
        Route("POST", "/v1/messages", Needs.CALL, create, ANTHROPIC),
        Route("POST", "/v1/messages/count_tokens", Needs.CALL, count, ANTHROPIC),
    ]


def _with_id(handle: Handler) -> Handler:
    """Give the message an id before it is handled, so that every error has the id, too."""

    async def handle_with_id(request: web.Request) -> web.StreamResponse:
        request[request_id_key] = new_request_id()
        return await handle(request)

    return handle_with_id


def error_answer(error: RequestError, id: RequestId | None = None) -> web.Response:
    """Return `error` as a response in Anthropic's format.

    `id` is the request's id, if it has one.
    """
    given = new_request_id() if id is None else id
    response = error_response(
        error, lambda each: anthropic_error(each, given), status=anthropic_status(error)
    )
    response.headers.update({ID_HEADER: given, REQUEST_ID: given})
    return response


# ---- context edits


Build = Callable[[tuple[Message, ...]], GenerateRequest]
CountTokens = Callable[[GenerateRequest], Awaitable[int]]


class Run(Protocol):
    """Runs slow work outside the event loop."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


@dataclass(slots=True)
class Edited:
    """A request after its edits. `num_tokens` is the length of its prompt, if it was counted."""

    messages: tuple[Message, ...]
    request: GenerateRequest
    applied: list[AppliedEdit] = field(default_factory=list)
    num_tokens: int | None = None
    original_tokens: int | None = None
    """The number of the prompt's tokens before its edits."""


async def apply_edits(
    messages: tuple[Message, ...],
    edits: Iterable[Edit],
    *,
    run: Run,
    build: Build,
    count: CountTokens,
) -> Edited:
    """Apply `edits` to `messages`. Raises the exceptions of `build` and `count`.

    Tokens are counted only if an edit can clear something: before the first edit, and after each
    edit.
    """
    edited = Edited(messages, await run(partial(build, messages)))
    for edit in edits:
        change = await run(partial(edit.change, edited.messages))
        if change is None:
            continue
        if edited.num_tokens is None:
            edited.num_tokens = edited.original_tokens = await count(edited.request)
        if edited.num_tokens <= edit.above:
            continue
        shorter = await run(partial(build, change.messages))
        num_tokens = await count(shorter)
        saved = max(0, edited.num_tokens - num_tokens)
        if saved < edit.least:
            continue
        edited.messages, edited.request = change.messages, shorter
        edited.num_tokens = num_tokens
        edited.applied.append(edit.applied(change.num_cleared, saved))
    return edited


# ---- messages


@dataclass(frozen=True, slots=True)
class _MessagesCall:
    """A parsed body, with the conversation of the thread that it continues."""

    requested: MessagesRequest
    conversation: MessagesInput
    num_bytes: int
    """The bytes of all bodies that made the conversation."""


class _Messages:
    """Handlers that answer messages, or count their tokens."""

    def __init__(self, runtime: FleetRuntime, conversations: Conversations, bodies: Bodies) -> None:
        self._runtime = runtime
        self._conversations = conversations
        self._bodies = bodies

    async def answer(self, requested: MessagesRequest, caller: Caller) -> Generation:
        """Return the message that continues the conversation."""
        asked = await self._asked(requested, caller.owner)
        edited = await self._edited(asked, caller)
        return Generation(
            requests=[edited.request],
            is_streamed=requested.stream,
            rendering=partial(_Answer, self._conversations, asked, edited, caller.owner),
            names=FIELD_NAMES,
            id_headers=(ID_HEADER,),
        )

    async def count(self, requested: MessagesRequest, caller: Caller) -> KnownAnswer:
        """Return the number of the conversation's tokens after its edits."""
        asked = await self._asked(requested, caller.owner)
        edited = await self._edited(asked, caller)
        num_tokens = edited.num_tokens
        if num_tokens is None:
            num_tokens = await self._count(caller, edited.request)
        body: CountedMessage = {"input_tokens": num_tokens}
        if requested.context_management is not None:
            original = num_tokens if edited.original_tokens is None else edited.original_tokens
            body["context_management"] = {"original_input_tokens": original}
        id = new_request_id()
        return KnownAnswer(body, {ID_HEADER: id, REQUEST_ID: id})

    async def _asked(self, requested: MessagesRequest, owner: str | None) -> _MessagesCall:
        """Return the parsed body with the thread that it continues. Raises `RequestError`."""
        thread = requested.thread
        if not isinstance(thread, ContinueThread):
            return _MessagesCall(requested, requested.conversation(), requested.num_bytes)
        id = thread.previous_message_id
        previous = await self._conversations.find(id, Thread, owner=owner)
        if previous is None:
            raise unknown_thread(id)
        num_bytes = previous.body_bytes + requested.num_bytes
        check_copies(num_bytes, field="thread.previous_message_id")
        return _MessagesCall(requested, requested.conversation(previous.conversation), num_bytes)

    async def _edited(self, asked: _MessagesCall, caller: Caller) -> Edited:
        """Return the request after its context edits. Raises `RequestError`."""
        conversation = asked.conversation

        async def run(work: Callable[[], T]) -> T:
            return await self._bodies.off_loop(asked.num_bytes, work)

        return await apply_edits(
            conversation.messages,
            asked.requested.edits,
            run=run,
            build=lambda each: asked.requested.request(replace(conversation, messages=each)),
            count=lambda shorter: self._count(caller, shorter),
        )

    async def _count(self, caller: Caller, requested: GenerateRequest) -> int:
        return await count_tokens(self._runtime, requested, FIELD_NAMES, caller=caller)


class _Answer(MessageEvents):
    """One message while it is generated.

    Its thread is stored if the message ends without an error.
    """

    def __init__(
        self,
        store: Conversations,
        asked: _MessagesCall,
        edited: Edited,
        owner: str | None,
        opened: Opened,
    ) -> None:
        requested = asked.requested
        super().__init__(
            opened.id,
            model=opened.model,
            max_tokens=requested.max_tokens,
            tier=tier_of(opened.priority),
            context=_context(requested, edited),
            hides_thinking=requested.hides_thinking,
            summarizes=summarized(asked.conversation.messages) if requested.is_compaction else None,
        )
        self._store = store
        self._asked = asked
        self._owner = owner

    def take(self, event: Event, _number: int = 0, /) -> list[Json]:
        """Return the API's events for `event`."""
        rendered = super().take(event)
        if isinstance(event, Done) and self._asked.requested.thread is not None:
            # Stored before the end is sent: the client may continue the thread at once.
            self._keep()
        return rendered

    def stored(self) -> Awaitable[None] | None:
        """Return a future that is done when any balancer can continue the thread."""
        if self._asked.requested.thread is None:
            return None
        return self._store.written(self.message["id"])

    def _keep(self) -> None:
        asked = self._asked
        thread = stored_thread(asked.conversation, self.message["content"], asked.num_bytes)
        self._store.put(self.message["id"], thread, time.monotonic(), owner=self._owner)


def _context(requested: MessagesRequest, edited: Edited) -> ContextManaged | None:
    return None if requested.context_management is None else {"applied_edits": edited.applied}
