"""Calls that need no slot: OpenAI's `/v1/embeddings`, and `/v1/rerank`."""

from ....fleet.caller import Caller
from ....fleet.queries.query import QueryRequest
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ...endpoint import Endpoint, Query, handler
from ...guard import Needs
from ...route import COHERE, JINA, OPENAI, Route
from .embeddings import EmbeddingsCall, parse_embeddings
from .rerank import RerankCall, parse_rerank


def routes(runtime: FleetRuntime) -> list[Route]:
    """Return both routes, also at other paths that clients use for them."""
    embeddings = handler(runtime, embeddings_endpoint(runtime))
    rerank = handler(runtime, rerank_endpoint(runtime))
    return [
        Route("POST", "/v1/embeddings", Needs.CALL, embeddings, OPENAI),
        Route("POST", "/embeddings", Needs.CALL, embeddings, OPENAI),
        Route("POST", "/v1/rerank", Needs.CALL, rerank, JINA),
        Route("POST", "/rerank", Needs.CALL, rerank, JINA),
        Route("POST", "/v2/rerank", Needs.CALL, rerank, COHERE),
    ]


def embeddings_endpoint(runtime: FleetRuntime) -> Endpoint[EmbeddingsCall]:
    """Return the endpoint of `/v1/embeddings`."""

    async def answer(call: EmbeddingsCall, caller: Caller) -> Query:
        model = _model(runtime, call.query_request, caller)
        return Query(call.query_request, lambda _id, results: call.answer(model, results))

    return Endpoint(parse_embeddings, answer)


def rerank_endpoint(runtime: FleetRuntime) -> Endpoint[RerankCall]:
    """Return the endpoint of `/v1/rerank`."""

    async def answer(call: RerankCall, caller: Caller) -> Query:
        model = _model(runtime, call.query_request, caller)
        return Query(call.query_request, lambda id, results: call.answer(id, model, results))

    return Endpoint(parse_rerank, answer)


def _model(runtime: FleetRuntime, query_request: QueryRequest, caller: Caller) -> str:
    """Return the model name for the answer."""
    if query_request.model is not None:
        return query_request.model
    return runtime.views.model_name_for(query_request.task, caller)
