"""Calls that need no slot: OpenAI's `/v1/embeddings`, and `/v1/rerank`."""

from aiohttp import web

from ....fleet.caller import Caller
from ....fleet.queries.query import QueryRequest
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ...common.answering import answer
from ...fields.reading import obeyed
from ...transport.callers import caller_of
from .embeddings import parse_embeddings
from .rerank import parse_rerank


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes."""

    async def embeddings(request: web.Request) -> web.Response:
        call = await obeyed(request, parse_embeddings)
        model = _model(runtime, call.query_request, caller_of(request))
        return await answer(
            request, runtime, call.query_request, lambda _id, results: call.answer(model, results)
        )

    async def rerank(request: web.Request) -> web.Response:
        call = await obeyed(request, parse_rerank)
        model = _model(runtime, call.query_request, caller_of(request))
        return await answer(
            request,
            runtime,
            call.query_request,
            lambda id, results: call.answer(id, model, results),
        )

    return [web.post("/v1/embeddings", embeddings), web.post("/v1/rerank", rerank)]


def _model(runtime: FleetRuntime, query_request: QueryRequest, caller: Caller) -> str:
    """The model name in the answer."""
    if query_request.model is not None:
        return query_request.model
    return runtime.model_name_for(query_request.task, caller)
