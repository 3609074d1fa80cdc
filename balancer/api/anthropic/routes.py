"""The Messages API over HTTP: `/v1/messages` and `/v1/messages/count_tokens`.

`anthropic-version`, `anthropic-beta` and `x-api-key` may be sent and change nothing. Every answer
has an id in its headers, and every error in its body, too; that of a message is its request's.
"""

from aiohttp import web

from ....shared.errors import RequestError
from ....shared.inference import GenerateRequest, RequestId
from ...fleet.runtime.fleet_runtime import FleetRuntime, new_request_id
from ..common.answering import json_response
from ..common.counting import count_tokens
from ..common.event_stream import read_to_end, server_sent_events
from ..transport.bodies import parsed
from ..transport.callers import caller_of
from ..transport.http import error_response
from ..transport.streaming import EVENT_STREAM, REQUEST_ID, send_stream
from .answer_types import CountedInput
from .errors import anthropic_error, anthropic_status
from .events import MessageEvents
from .requests import FIELD_NAMES, parse_count, parse_messages


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes under `/v1/messages`."""

    async def create(request: web.Request) -> web.StreamResponse:
        id = new_request_id()
        try:
            wanted = await parsed(request, parse_messages)
            return await _answer(runtime, request, wanted, id)
        except RequestError as error:
            return error_answer(error, id)

    async def count(request: web.Request) -> web.Response:
        wanted = await parsed(request, parse_count)
        num_tokens = await count_tokens(runtime, wanted, FIELD_NAMES, caller=caller_of(request))
        body: CountedInput = {"input_tokens": num_tokens}
        return json_response(body, headers=_headers(new_request_id()))

    return [web.post("/v1/messages", create), web.post("/v1/messages/count_tokens", count)]


def error_answer(error: RequestError, id: RequestId | None = None) -> web.Response:
    """`error` as Anthropic answers it; `id` is that of the request, where it has one."""
    given = new_request_id() if id is None else id
    response = error_response(
        error, lambda each: anthropic_error(each, given), status=anthropic_status(error)
    )
    response.headers.update(_headers(given))
    return response


async def _answer(
    runtime: FleetRuntime, request: web.Request, wanted: GenerateRequest, id: RequestId
) -> web.StreamResponse:
    with runtime.open(wanted, id, caller=caller_of(request)) as stream:
        model = runtime.model_name_for("generate") if wanted.model is None else wanted.model
        message = MessageEvents(id, model=model, max_tokens=wanted.max_tokens)
        if wanted.stream:
            return await send_stream(
                request,
                server_sent_events(stream, message, FIELD_NAMES),
                content_type=EVENT_STREAM,
                headers=_headers(id),
            )
        await read_to_end(stream, message, FIELD_NAMES)
        return json_response(message.message, headers=_headers(id))


def _headers(id: RequestId) -> dict[str, str]:
    return {"request-id": id, REQUEST_ID: id}
