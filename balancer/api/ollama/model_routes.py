"""Ollama's calls about models and embeddings over HTTP, which take no slot."""

import time
from collections.abc import Callable, Mapping, Sequence

from aiohttp import hdrs, web
from typing_extensions import TypedDict

from ....shared.queries import DescribeTokenizer, Result, TokenizerDescription
from ...fleet.caller import Caller
from ...fleet.queries.query import QueryRequest
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelView
from ..common.answering import json_response
from ..common.parts import only
from ..endpoint import Endpoint, KnownAnswer, Query, handler
from ..guard import Needs
from ..route import OLLAMA, Route
from ..transport.callers import caller_of
from .answers import time_text
from .embeddings import EmbedCall, parse_embed, parse_embeddings, vector_answer, vectors_answer
from .models import (
    API_VERSION,
    OllamaModels,
    OllamaRunningModels,
    described,
    listed,
    parse_show,
    running,
)
from .routes import model_of, name_of


class OllamaVersion(TypedDict):
    """The version of Ollama whose API this balancer follows."""

    version: str


GREETING = "Ollama is running"
"""The answer at the root, by which clients see that a server is there."""

FRONT_PAGE = """<!doctype html>
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Arriero: inference port</title>
<body style="font: 16px/1.5 system-ui; max-width: 40em; margin: 3em auto; padding: 0 1em">
<h1>Arriero</h1>
<p>This is the <b>inference port</b> of a balancer. It is for programs: OpenAI's API is under
<code>/v1</code>, Anthropic's at <code>/v1/messages</code>, Ollama's under <code>/api</code>,
and the native one under <code>/api/v1</code>.
<a href="/openapi.json">/openapi.json</a> describes them all.</p>
<p>The dashboard is on the <b>management port</b>, 8060 unless <code>--management-addr</code>
says otherwise.</p>
"""
"""The page for people who open the port in a browser."""

Shape = Callable[[Sequence[Result]], Mapping[str, object]]
"""Makes the body of an answer from results."""


def routes(runtime: FleetRuntime) -> list[Route]:
    """Return the routes. The time of a model's last change is the start of the balancer."""
    handlers = _ModelHandlers(runtime, time_text(time.time()))
    show = handler(runtime, Endpoint(parse_show, handlers.show))
    embed = handler(runtime, Endpoint(parse_embed, handlers.embed))
    embeddings = handler(runtime, Endpoint(parse_embeddings, handlers.embeddings))
    return [
        Route("GET", "/", Needs.ANY, handlers.greet, OLLAMA),
        Route("GET", "/api/version", Needs.ANY, handlers.version, OLLAMA),
        Route("GET", "/api/tags", Needs.LIST, handlers.tags, OLLAMA),
        Route("GET", "/api/ps", Needs.LIST, handlers.ps, OLLAMA),
        Route("POST", "/api/show", Needs.LIST, show, OLLAMA),
        Route("POST", "/api/embed", Needs.CALL, embed, OLLAMA),
        Route("POST", "/api/embeddings", Needs.CALL, embeddings, OLLAMA),
    ]


class _ModelHandlers:
    """Handlers of the routes."""

    def __init__(self, runtime: FleetRuntime, started: str) -> None:
        self._runtime = runtime
        self._started = started

    async def greet(self, request: web.Request) -> web.Response:
        if "text/html" in request.headers.get(hdrs.ACCEPT, ""):  # a browser
            return web.Response(text=FRONT_PAGE, content_type="text/html")
        return web.Response(text=GREETING)

    async def version(self, _request: web.Request) -> web.Response:
        return json_response(OllamaVersion(version=API_VERSION))

    async def tags(self, request: web.Request) -> web.Response:
        models = self._runtime.views.models(caller_of(request))
        return json_response(OllamaModels(models=listed(models, self._started)))

    async def ps(self, request: web.Request) -> web.Response:
        models = self._runtime.views.models(caller_of(request))
        return json_response(OllamaRunningModels(models=running(models)))

    async def show(self, name: str, caller: Caller) -> Query | KnownAnswer:
        model = model_of(self._runtime, name, caller)
        if model.status != "loaded":
            return KnownAnswer(described(model.info, None, self._started))
        query = QueryRequest(kind="text", parts=(DescribeTokenizer(),), model=model.info.name)
        return Query(query, lambda _id, results: self._described(model, results))

    def _described(self, model: ModelView, results: Sequence[Result]) -> Mapping[str, object]:
        return described(model.info, only(results, TokenizerDescription), self._started)

    async def embed(self, call: EmbedCall, caller: Caller) -> Query | KnownAnswer:
        started = time.monotonic_ns()
        return self._embedded(
            call,
            caller,
            lambda results: vectors_answer(call, results, time.monotonic_ns() - started),
        )

    async def embeddings(self, call: EmbedCall, caller: Caller) -> Query | KnownAnswer:
        return self._embedded(call, caller, lambda results: vector_answer(call, results))

    def _embedded(self, call: EmbedCall, caller: Caller, shape: Shape) -> Query | KnownAnswer:
        """Return the query for a call.

        A call without an input only checks that the model is served.
        """
        if not call.inputs:
            model_of(self._runtime, call.model, caller)
            return KnownAnswer(shape(()))
        query = call.query_request(name_of(self._runtime, call.model, caller))
        return Query(query, lambda _id, results: shape(results))
