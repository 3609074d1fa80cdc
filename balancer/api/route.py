"""A route, declared once: the permission it needs, its handler, and its description.

`/openapi.json` describes the routes of Arriero's own APIs. Other APIs are documented by their
owners.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version

from aiohttp import hdrs, web
from pydantic_core import to_json

from .guard import Needs, Table
from .openapi.document import Doc, Operation, document, json_answer
from .transport.http import ACTING, Handler


@dataclass(frozen=True, slots=True)
class ApiOwner:
    """The owner of the API that a route follows, and the address of its documentation."""

    name: str
    url: str


OPENAI = ApiOwner("OpenAI", "https://platform.openai.com/docs/api-reference")
ANTHROPIC = ApiOwner("Anthropic", "https://docs.anthropic.com/en/api")
OLLAMA = ApiOwner("Ollama", "https://github.com/ollama/ollama/blob/main/docs/api.md")
VLLM = ApiOwner("vLLM", "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html")
LLAMA_SERVER = ApiOwner(
    "llama-server", "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
)
COHERE = ApiOwner("Cohere", "https://docs.cohere.com/reference/rerank")
JINA = ApiOwner("Jina", "https://api.jina.ai/redoc#tag/rerank")


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path, which may have patterns, as in `/things/{id:.+}`.

    A `GET` also answers `HEAD`, unless it `is_endless`. A `GET` that `acts` causes work at agents,
    such as loading a model. Links and images of foreign pages cannot reach such a route.
    """

    method: str
    path: str
    needs: Needs
    handler: Handler
    doc: Doc | ApiOwner
    is_endless: bool = field(default=False, kw_only=True)
    acts: bool = field(default=False, kw_only=True)

    @property
    def template(self) -> str:
        """The path without its patterns, for tables and documents."""
        return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", self.path)

    def definition(self) -> web.RouteDef:
        """Return the route's definition for an aiohttp app."""
        if self.method == hdrs.METH_GET:
            return web.get(self.path, self.handler, allow_head=not self.is_endless)
        return web.route(self.method, self.path, self.handler)


def permissions(routes: Iterable[Route]) -> Table:
    """Return the permission that each route needs.

    Raises `ValueError` if a route is declared twice.
    """
    table: dict[tuple[str, str], Needs] = {}
    for route in routes:
        place = route.method, route.template
        if place in table:
            raise ValueError(f"{route.method} {route.template} is declared twice")
        table[place] = route.needs
    return table


ROUTES = web.AppKey("ROUTES", Sequence[Route])
"""App key of the routes that an app serves."""


def mount(app: web.Application, routes: Sequence[Route]) -> None:
    """Add `routes` to `app`; the middleware of `app` admits by their `permissions`."""
    app[ROUTES] = routes
    app[ACTING] = frozenset(route.template for route in routes if route.acts)
    app.add_routes([route.definition() for route in routes])


def document_route(title: str) -> Route:
    """Return the route `GET /openapi.json`, which describes the app's routes of Arriero's own
    APIs.
    """
    doc = Doc(
        "Document",
        "This document.",
        {200: json_answer("An OpenAPI 3.1 document.", {"type": "object"})},
    )
    return Route("GET", "/openapi.json", Needs.ANY, _ServedDocument(title).serve, doc)


class _ServedDocument:
    """Builds the document on its first request.

    Building takes longer than the rest of a balancer's start, and most balancers never get a
    request for the document.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._built: asyncio.Future[bytes] | None = None

    async def serve(self, request: web.Request) -> web.Response:
        if self._built is None:
            build = partial(_built, self._title, request.app[ROUTES])
            self._built = asyncio.get_running_loop().run_in_executor(None, build)
        # Shielded: others may wait for it when this client disconnects.
        body = await asyncio.shield(self._built)
        return web.Response(body=body, content_type="application/json")


def _built(title: str, routes: Sequence[Route]) -> bytes:
    operations = [
        Operation(each.method, each.template, each.doc, each.needs is Needs.NOTHING)
        for each in routes
        if isinstance(each.doc, Doc)
    ]
    return to_json(document(title=title, version=version("arriero"), operations=operations))
