"""Ollama's calls about models and embeddings over HTTP, which take no slot."""

import time
from collections.abc import Callable, Mapping, Sequence

from aiohttp import web

from ....shared.queries import DescribeTokenizer, Result, TokenizerDescription
from ...fleet.queries.query import QueryRequest
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelView
from ..common.answering import answer, json_response, written
from ..common.parts import only
from ..fields.reading import obeyed
from ..transport.callers import caller_of
from ..transport.door_reports import refusals_reported
from .answer_types import OllamaModels, OllamaRunningModels, OllamaVersion
from .answers import told_time
from .embeddings import EmbedCall, parse_embed, parse_embeddings, vector_answer, vectors_answer
from .models import API_VERSION, described, listed, parse_show, running
from .routes import model_of, name_of

GREETING = "Ollama is running"
"""What clients look for at the root, where they ask whether somebody is there."""

Shape = Callable[[Sequence[Result]], Mapping[str, object]]
"""Makes the body of an answer from results."""


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes. Models were last modified when the balancer started."""
    handlers = _Handlers(runtime, told_time(time.time()))
    return [
        web.get("/", handlers.greet),
        web.get("/api/version", handlers.version),
        web.get("/api/tags", handlers.tags),
        web.get("/api/ps", handlers.ps),
        web.post("/api/show", handlers.show),
        web.post("/api/embed", handlers.embed),
        web.post("/api/embeddings", handlers.embeddings),
    ]


class _Handlers:
    """The handlers of the routes."""

    def __init__(self, runtime: FleetRuntime, started: str) -> None:
        self._runtime = runtime
        self._started = started

    async def greet(self, _request: web.Request) -> web.Response:
        return web.Response(text=GREETING)

    async def version(self, _request: web.Request) -> web.Response:
        return json_response(OllamaVersion(version=API_VERSION))

    async def tags(self, request: web.Request) -> web.Response:
        models = self._runtime.models(caller_of(request))
        return json_response(OllamaModels(models=listed(models, self._started)))

    async def ps(self, request: web.Request) -> web.Response:
        models = self._runtime.models(caller_of(request))
        return json_response(OllamaRunningModels(models=running(models)))

    async def show(self, request: web.Request) -> web.Response:
        name = await obeyed(request, parse_show)
        with refusals_reported(request):
            model = model_of(self._runtime, name, caller_of(request))
        if model.status != "loaded":
            return json_response(described(model.info, None, self._started))
        query = QueryRequest(kind="text", parts=(DescribeTokenizer(),), model=model.info.name)
        return await answer(
            request, self._runtime, query, lambda _id, results: self._described(model, results)
        )

    def _described(self, model: ModelView, results: Sequence[Result]) -> Mapping[str, object]:
        return described(model.info, only(results, TokenizerDescription), self._started)

    async def embed(self, request: web.Request) -> web.Response:
        started = time.monotonic_ns()
        call = await obeyed(request, parse_embed)
        return await self._embedded(
            request,
            call,
            lambda results: vectors_answer(call, results, time.monotonic_ns() - started),
        )

    async def embeddings(self, request: web.Request) -> web.Response:
        call = await obeyed(request, parse_embeddings)
        return await self._embedded(request, call, lambda results: vector_answer(call, results))

    async def _embedded(self, request: web.Request, call: EmbedCall, shape: Shape) -> web.Response:
        """Without an input, whether the model is there is all that is asked."""
        caller = caller_of(request)
        if not call.inputs:
            with refusals_reported(request):
                model_of(self._runtime, call.model, caller)
            return web.Response(body=await written(shape(())), content_type="application/json")
        query = call.query_request(name_of(self._runtime, call.model, caller))
        return await answer(request, self._runtime, query, lambda _id, results: shape(results))
