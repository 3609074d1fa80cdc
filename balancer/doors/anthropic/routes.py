"""The Messages API over HTTP: `/v1/messages` and `/v1/messages/count_tokens`.

`anthropic-version`, `anthropic-beta` and `x-api-key` may be sent and change nothing.
"""

from aiohttp import web

from ....shared.errors import RequestError
from ...fleet.switchboard import Switchboard
from ..counting import count_tokens
from ..http import error_response, read_json_body
from ..narration import in_own_words, listen, narrate
from ..streaming import EVENT_STREAM, REQUEST_ID, send_stream
from .errors import anthropic_error
from .events import MessageEvents
from .requests import FIELD_NAMES, parse_count, parse_messages

_REQUEST_ID = "request-id"


def routes(switchboard: Switchboard) -> list[web.AbstractRouteDef]:
    """The routes under `/v1/messages`."""

    async def create(request: web.Request) -> web.StreamResponse:
        wanted = parse_messages(await read_json_body(request))
        with switchboard.open(wanted) as stream:
            model = switchboard.view().served_name if wanted.model is None else wanted.model
            message = MessageEvents(stream.id, model=model, max_tokens=wanted.max_tokens)
            events = in_own_words(stream, FIELD_NAMES)
            headers = {_REQUEST_ID: stream.id, REQUEST_ID: stream.id}
            try:
                if wanted.stream:
                    return await send_stream(
                        request,
                        narrate(events, message),
                        content_type=EVENT_STREAM,
                        headers=headers,
                    )
                await listen(events, message)
                return web.json_response(message.message, headers=headers)
            except RequestError as error:
                response = error_response(error, lambda e: anthropic_error(e, stream.id))
                response.headers.update(headers)
                return response

    async def count(request: web.Request) -> web.Response:
        wanted = parse_count(await read_json_body(request))
        num_tokens = await count_tokens(switchboard, wanted, FIELD_NAMES)
        return web.json_response({"input_tokens": num_tokens})

    return [web.post("/v1/messages", create), web.post("/v1/messages/count_tokens", count)]
