"""vLLM's `/tokenize`, `/detokenize` and `/tokenizer_info` over HTTP."""

from collections.abc import Callable, Mapping, Sequence

from aiohttp import web

from ....shared.errors import ModelNotFound
from ....shared.queries import Result
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelView
from ..common.answering import answer
from ..fields.field_notes import FieldNotes
from ..fields.reading import obeyed
from ..transport.callers import caller_of
from ..transport.http import Handler
from .tokens import (
    TokenCall,
    parse_detokenize,
    parse_tokenize,
    sole_model,
    text_answer,
    tokenizer_answer,
    tokenizer_call,
    tokens_answer,
)

PATHS = ("/tokenize", "/detokenize", "/tokenizer_info")

Shape = Callable[[ModelView, Sequence[Result]], Mapping[str, object]]


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes, at the root as vLLM has them."""

    async def tokenizer_info(request: web.Request) -> web.Response:
        call = tokenizer_call(request.query.get("model"))
        return await _answer(request, runtime, call, tokenizer_answer)

    return [
        web.post("/tokenize", _posted(runtime, parse_tokenize, tokens_answer)),
        web.post("/detokenize", _posted(runtime, parse_detokenize, text_answer)),
        web.get("/tokenizer_info", tokenizer_info),
    ]


def _posted(
    runtime: FleetRuntime, parse: Callable[[bytes, FieldNotes], TokenCall], shape: Shape
) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await _answer(request, runtime, await obeyed(request, parse), shape)

    return handle


async def _answer(
    request: web.Request, runtime: FleetRuntime, call: TokenCall, shape: Shape
) -> web.Response:
    model = _model(runtime, call.model, caller_of(request))
    return await answer(
        request, runtime, call.query_request(model), lambda _id, results: shape(model, results)
    )


def _model(runtime: FleetRuntime, name: str | None, caller: Caller) -> ModelView:
    if name is None:
        return sole_model(runtime.models(caller))
    if (model := runtime.model(name, caller)) is None:
        raise ModelNotFound(f"no agent serves the model {name[:200]!r}", field="model")
    return model
