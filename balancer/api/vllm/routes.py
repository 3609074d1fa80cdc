"""vLLM's `/tokenize`, `/detokenize`, `/tokenizer_info`, `/version` and `/ping` over HTTP."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version

from aiohttp import web
from typing_extensions import TypedDict

from ....shared.queries import Result
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelView
from ..common.answering import json_response
from ..common.models import model_named
from ..endpoint import Endpoint, Query, handler, respond
from ..guard import Needs
from ..route import VLLM, Route
from ..transport.callers import caller_of
from .tokens import (
    TokenCall,
    parse_detokenize,
    parse_tokenize,
    text_answer,
    tokenizer_answer,
    tokenizer_call,
    tokens_answer,
)

PATHS = ("/tokenize", "/detokenize", "/tokenizer_info", "/version", "/ping")

Shape = Callable[[ModelView, Sequence[Result]], Mapping[str, object]]
Answering = Callable[[TokenCall, Caller], Awaitable[Query]]


def routes(runtime: FleetRuntime) -> list[Route]:
    """Return the routes, at the root as in vLLM."""
    tokenize = Endpoint(parse_tokenize, _answering(runtime, tokens_answer))
    detokenize = Endpoint(parse_detokenize, _answering(runtime, text_answer))
    describe = _answering(runtime, tokenizer_answer)

    async def tokenizer_info(request: web.Request) -> web.StreamResponse:
        call = tokenizer_call(request.query.get("model"))
        return await respond(request, runtime, await describe(call, caller_of(request)))

    return [
        Route("POST", "/tokenize", Needs.CALL, handler(runtime, tokenize), VLLM),
        Route("POST", "/detokenize", Needs.CALL, handler(runtime, detokenize), VLLM),
        Route("GET", "/tokenizer_info", Needs.CALL, tokenizer_info, VLLM, acts=True),
        Route("GET", "/version", Needs.ANY, _version, VLLM),
        Route("GET", "/ping", Needs.NOTHING, _ping, VLLM),
        Route("POST", "/ping", Needs.NOTHING, _ping, VLLM),
    ]


class Version(TypedDict):
    """The version of this balancer, which is not vLLM."""

    version: str


async def _version(_request: web.Request) -> web.Response:
    return json_response(Version(version=version("arriero")))


async def _ping(_request: web.Request) -> web.Response:
    """Answer that the process is alive, as SageMaker expects."""
    return web.Response()


def _answering(runtime: FleetRuntime, shape: Shape) -> Answering:
    async def answer(call: TokenCall, caller: Caller) -> Query:
        model = model_named(runtime, call.model, caller)
        return Query(call.query_request(model), lambda _id, results: shape(model, results))

    return answer
