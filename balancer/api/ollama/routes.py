"""Ollama's `/api/chat` and `/api/generate` over HTTP."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from ....shared.errors import RequestError
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelView
from ..common.accumulator import Accumulator
from ..common.body_fields import FieldNames
from ..common.models import unknown_model
from ..endpoint import Endpoint, Generation, KnownAnswer, handler
from ..fields.field_table import FieldNotes
from ..guard import Needs
from ..route import OLLAMA, Route
from ..transport.http import error_response
from ..transport.streaming import NDJSON
from .answers import (
    CHAT,
    GENERATE,
    LineHead,
    LineShape,
    OllamaAnswer,
    OllamaChat,
    OllamaText,
    loaded_chat,
    loaded_text,
    ollama_error,
    whole_chat,
    whole_text,
)
from .models import served_name
from .options import CHAT_NAMES, GENERATE_NAMES
from .requests import OllamaRequest, parse_chat, parse_generate

Parse = Callable[[bytes, FieldNotes | None], OllamaRequest]


@dataclass(frozen=True, slots=True)
class _OllamaCall:
    """The parts in which the two calls differ."""

    parse: Parse
    names: FieldNames
    shape: LineShape
    whole: Callable[[LineHead, Accumulator], OllamaChat | OllamaText]
    loaded: Callable[[LineHead], OllamaChat | OllamaText]


_CHAT = _OllamaCall(parse_chat, CHAT_NAMES, CHAT, whole_chat, loaded_chat)
_GENERATE = _OllamaCall(parse_generate, GENERATE_NAMES, GENERATE, whole_text, loaded_text)


def routes(runtime: FleetRuntime) -> list[Route]:
    """Return the routes."""
    chat = handler(runtime, _endpoint(runtime, _CHAT))
    generate = handler(runtime, _endpoint(runtime, _GENERATE))
    return [
        Route("POST", "/api/chat", Needs.CALL, chat, OLLAMA),
        Route("POST", "/api/generate", Needs.CALL, generate, OLLAMA),
    ]


def error_answer(error: RequestError) -> web.Response:
    """Return `error` as a response in Ollama's format."""
    return error_response(error, ollama_error)


def name_of(runtime: FleetRuntime, asked: str, caller: Caller) -> str:
    """Return the fleet's name of the model that a client asks for."""
    return served_name(asked, lambda name: runtime.views.model(name, caller) is not None)


def model_of(runtime: FleetRuntime, asked: str, caller: Caller) -> ModelView:
    """Return the model that a client asks for. Raises `ModelNotFound`."""
    model = runtime.views.model(name_of(runtime, asked, caller), caller)
    if model is None:
        raise unknown_model(runtime, asked, caller)
    return model


def _endpoint(runtime: FleetRuntime, call: _OllamaCall) -> Endpoint[OllamaRequest]:
    async def answer(requested: OllamaRequest, caller: Caller) -> Generation | KnownAnswer:
        asked = requested.request_for(name_of(runtime, requested.model, caller))
        if asked is None:  # whether the model is there is all that is asked
            model_of(runtime, requested.model, caller)
            return KnownAnswer(call.loaded(LineHead(requested.model, time.time())))
        return Generation(
            requests=[asked],
            is_streamed=requested.stream,
            rendering=lambda opened: OllamaAnswer(
                call.shape, LineHead(requested.model, opened.created_at), call.whole
            ),
            names=call.names,
            content_types=(NDJSON,),
            tells_waiting=False,  # lines have no comments
        )

    return Endpoint(call.parse, answer)
