"""vLLM's `/tokenize`, `/detokenize` and `/tokenizer_info` over HTTP."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from aiohttp import web

from ....shared.errors import ModelNotFound
from ....shared.queries import Result
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelView
from ..access.permissions import Needs
from ..endpoint import Endpoint, Query, handler, respond
from ..route import VLLM, Route
from ..transport.callers import caller_of
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
Answering = Callable[[TokenCall, Caller], Awaitable[Query]]


def routes(runtime: FleetRuntime) -> list[Route]:
    """The routes, at the root as vLLM has them."""
    tokenize = Endpoint(parse_tokenize, _answering(runtime, tokens_answer))
    detokenize = Endpoint(parse_detokenize, _answering(runtime, text_answer))
    describe = _answering(runtime, tokenizer_answer)

    async def tokenizer_info(request: web.Request) -> web.StreamResponse:
        call = tokenizer_call(request.query.get("model"))
        return await respond(request, runtime, await describe(call, caller_of(request)))

    return [
        Route("POST", "/tokenize", Needs.CALL, handler(runtime, tokenize), VLLM),
        Route("POST", "/detokenize", Needs.CALL, handler(runtime, detokenize), VLLM),
        Route("GET", "/tokenizer_info", Needs.CALL, tokenizer_info, VLLM),
    ]


def _answering(runtime: FleetRuntime, shape: Shape) -> Answering:
    async def answer(call: TokenCall, caller: Caller) -> Query:
        model = _model(runtime, call.model, caller)
        return Query(call.query_request(model), lambda _id, results: shape(model, results))

    return answer


def _model(runtime: FleetRuntime, name: str | None, caller: Caller) -> ModelView:
    if name is None:
        return sole_model(runtime.views.models(caller))
    if (model := runtime.views.model(name, caller)) is None:
        raise ModelNotFound(f"no agent serves the model {name[:200]!r}", field="model")
    return model
