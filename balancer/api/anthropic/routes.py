"""The Messages API over HTTP: `/v1/messages` and `/v1/messages/count_tokens`.

`anthropic-version`, `anthropic-beta` and `x-api-key` may be sent and change nothing. Every answer
has an id in its headers, and every error in its body, too; that of a message is its request's.
"""

from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

from ....shared.errors import RequestError
from ....shared.inference import GenerateRequest, RequestId
from ...fleet.runtime.fleet_runtime import FleetRuntime, new_request_id
from ..common.answering import json_response
from ..common.counting import count_tokens
from ..common.event_stream import read_to_end, server_sent_events
from ..fields.reading import obeyed
from ..transport.bodies import BODIES
from ..transport.callers import caller_of
from ..transport.http import error_response
from ..transport.streaming import EVENT_STREAM, REQUEST_ID, send_stream
from .answer_types import ContextManaged, CountedInput
from .editing import Edited, apply_edits
from .errors import anthropic_error, anthropic_status
from .events import MessageEvents
from .requests import FIELD_NAMES, Wanted, parse_count, parse_messages

T = TypeVar("T")


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes under `/v1/messages`."""
    door = _Door(runtime)
    return [
        web.post("/v1/messages", door.create),
        web.post("/v1/messages/count_tokens", door.count),
    ]


def error_answer(error: RequestError, id: RequestId | None = None) -> web.Response:
    """`error` as Anthropic answers it; `id` is that of the request, where it has one."""
    given = new_request_id() if id is None else id
    response = error_response(
        error, lambda each: anthropic_error(each, given), status=anthropic_status(error)
    )
    response.headers.update(_headers(given))
    return response


class _Door:
    """What each route does."""

    def __init__(self, runtime: FleetRuntime) -> None:
        self._runtime = runtime

    async def create(self, request: web.Request) -> web.StreamResponse:
        id = new_request_id()
        try:
            wanted = await obeyed(request, parse_messages)
            edited = await self._edited(request, wanted)
            return await self._answer(request, wanted, edited, id)
        except RequestError as error:
            return error_answer(error, id)

    async def count(self, request: web.Request) -> web.Response:
        wanted = await obeyed(request, parse_count)
        edited = await self._edited(request, wanted)
        num_tokens = edited.num_tokens
        if num_tokens is None:
            num_tokens = await self._count(request, edited.request)
        body: CountedInput = {"input_tokens": num_tokens}
        if wanted.context_management is not None:
            original = num_tokens if edited.original_tokens is None else edited.original_tokens
            body["context_management"] = {"original_input_tokens": original}
        return json_response(body, headers=_headers(new_request_id()))

    async def _edited(self, request: web.Request, wanted: Wanted) -> Edited:
        """The request after its context edits. Raises `RequestError`."""
        bodies = request.app[BODIES]

        async def run(work: Callable[[], T]) -> T:
            return await bodies.off_loop(wanted.num_bytes, work)

        return await apply_edits(
            wanted.messages,
            wanted.edits,
            run=run,
            build=wanted.request,
            count=lambda shorter: self._count(request, shorter),
        )

    async def _count(self, request: web.Request, wanted: GenerateRequest) -> int:
        return await count_tokens(self._runtime, wanted, FIELD_NAMES, caller=caller_of(request))

    async def _answer(
        self, request: web.Request, wanted: Wanted, edited: Edited, id: RequestId
    ) -> web.StreamResponse:
        runtime = self._runtime
        with runtime.open(edited.request, id, caller=caller_of(request)) as stream:
            message = MessageEvents(
                id,
                model=runtime.model_name_for("generate") if wanted.model is None else wanted.model,
                max_tokens=wanted.max_tokens,
                context=_context(wanted, edited),
            )
            if wanted.stream:
                return await send_stream(
                    request,
                    server_sent_events(stream, message, FIELD_NAMES),
                    content_type=EVENT_STREAM,
                    headers=_headers(id),
                )
            await read_to_end(stream, message, FIELD_NAMES)
            return json_response(message.message, headers=_headers(id))


def _context(wanted: Wanted, edited: Edited) -> ContextManaged | None:
    return None if wanted.context_management is None else {"applied_edits": edited.applied}


def _headers(id: RequestId) -> dict[str, str]:
    return {"request-id": id, REQUEST_ID: id}
