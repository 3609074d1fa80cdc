"""Ollama's `/api/chat` and `/api/generate` over HTTP."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from ....shared.errors import ModelNotFound, RequestError
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.runtime.stream import Stream
from ...fleet.view import ModelView
from ..common.accumulator import Accumulator
from ..common.answering import json_response
from ..common.field_names import FieldNames
from ..common.opening import opener
from ..fields.field_notes import FieldNotes
from ..fields.reading import obeyed
from ..transport.callers import caller_of
from ..transport.door_reports import refusals_reported
from ..transport.http import Handler, error_response, request_id_key
from ..transport.streaming import NDJSON, REQUEST_ID, send_events
from .answer_types import OllamaChat, OllamaText
from .answers import (
    CHAT,
    GENERATE,
    Head,
    LineWriter,
    Shape,
    loaded_chat,
    loaded_text,
    whole_chat,
    whole_text,
)
from .errors import ollama_error
from .models import served_name
from .options import CHAT_NAMES, GENERATE_NAMES
from .requests import Wanted, parse_chat, parse_generate

Parse = Callable[[bytes, FieldNotes], Wanted]


@dataclass(frozen=True, slots=True)
class _Door:
    """How the two calls differ."""

    parse: Parse
    names: FieldNames
    shape: Shape
    whole: Callable[[Head, Accumulator], OllamaChat | OllamaText]
    loaded: Callable[[Head], OllamaChat | OllamaText]


_CHAT = _Door(parse_chat, CHAT_NAMES, CHAT, whole_chat, loaded_chat)
_GENERATE = _Door(parse_generate, GENERATE_NAMES, GENERATE, whole_text, loaded_text)


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes."""
    return [
        web.post("/api/chat", _answered(runtime, _CHAT)),
        web.post("/api/generate", _answered(runtime, _GENERATE)),
    ]


def error_answer(error: RequestError) -> web.Response:
    """`error` as a response in Ollama's format."""
    return error_response(error, ollama_error)


def name_of(runtime: FleetRuntime, asked: str, caller: Caller) -> str:
    """The fleet's name of the model that a client asks for."""
    return served_name(asked, lambda name: runtime.model(name, caller) is not None)


def model_of(runtime: FleetRuntime, asked: str, caller: Caller) -> ModelView:
    """The model that a client asks for. Raises `ModelNotFound`."""
    model = runtime.model(name_of(runtime, asked, caller), caller)
    if model is None:
        raise ModelNotFound(f"no agent serves the model {asked[:200]!r}", field="model")
    return model


def _answered(runtime: FleetRuntime, door: _Door) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        wanted = await obeyed(request, door.parse)
        try:
            return await _answer(request, runtime, wanted, door)
        except RequestError as error:
            raise door.names.told(error) from error

    return handle


async def _answer(
    request: web.Request, runtime: FleetRuntime, wanted: Wanted, door: _Door
) -> web.StreamResponse:
    caller = caller_of(request)
    asked = wanted.request_for(name_of(runtime, wanted.model, caller))
    if asked is None:
        with refusals_reported(request):
            model_of(runtime, wanted.model, caller)
        return json_response(door.loaded(Head(wanted.model, time.time())))
    # Lines have no comments, so a client that waits hears nothing.
    open_stream = await opener(request, runtime, tell_waiting=None)
    with open_stream(asked) as stream:
        request[request_id_key] = stream.id
        head = Head(wanted.model, stream.created_at)
        headers = {REQUEST_ID: stream.id}
        if wanted.stream:
            writer = LineWriter(door.shape, head, door.names)
            return await send_events(request, stream, writer, content_type=NDJSON, headers=headers)
        return json_response(door.whole(head, await _collected(stream)), headers=headers)


async def _collected(stream: Stream) -> Accumulator:
    answer = Accumulator()
    async for event in stream:
        answer.add(event)
    return answer
