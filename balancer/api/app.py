"""The inference port: all APIs over one fleet runtime."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from aiohttp import web
from typing_extensions import TypedDict

from ...shared.errors import NotFound, NotSupported, RequestError
from ...shared.inference import Count
from ..access.access import Access
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.runtime.retained_requests import RetainedRequests
from ..jobs.jobs import Jobs
from .anthropic import routes as anthropic_routes
from .common import models
from .common.answering import json_response
from .common.idempotency import RESTORE_RETAINED, RETAINED_REQUESTS, RestoreRetained, restore_none
from .conversations import Conversations
from .endpoint import tell_ignored
from .guard import Leases, Needs, guard
from .limit_headers import limit_headers
from .llama_server import routes as llama_server_routes
from .native import routes as native_routes
from .native.web_socket import NativeSocket
from .ollama import model_routes as ollama_model_routes
from .ollama import routes as ollama_routes
from .openai.batches import batch_routes, file_routes
from .openai.completions import routes as completion_routes
from .openai.conversations import routes as conversation_routes
from .openai.conversations.book import ConversationBook
from .openai.errors import openai_error
from .openai.queries import routes as query_routes
from .openai.responses import routes as responses_routes
from .openai.responses.web_socket import ResponsesSocket
from .openapi.document import Doc, json_answer
from .route import Route, document_route, mount, permissions
from .transport.bodies import BODIES, Bodies
from .transport.fault_reports import FAULT_REPORTS, FaultReports, RefusalReport
from .transport.hosts import AllowedHosts
from .transport.http import (
    ErrorAnswer,
    Handler,
    admit_origins,
    error_response,
    middleware,
    request_id_key,
)
from .vllm import routes as vllm_routes


def inference_app(
    runtime: FleetRuntime,
    conversations: Conversations | None = None,
    *,
    bodies: Bodies | None = None,
    hosts: AllowedHosts | None = None,
    reports: FaultReports | None = None,
    access: Access | None = None,
    retained: RetainedRequests | None = None,
    jobs: Jobs | None = None,
    restore_retained: RestoreRetained = restore_none,
    more_routes: Sequence[Route] = (),
) -> web.Application:
    """Return the app of the inference port.

    Run the app with `handler_cancellation=True`, so that a disconnect cancels the handler.

    `conversations` stores conversations that later requests continue, and `bodies` limits request
    bodies. `retained` holds requests that outlive their connection, and `restore_retained` loads
    requests of other runs of the balancer from the store. `hosts` lists the allowed host names
    besides addresses, and `reports` records faulty requests for operators. Each of these has a
    default. Without `access` no key is needed; without `jobs` there are no files and batches.
    `more_routes` are served in addition. The shutdown of the app closes open WebSockets; drain the
    requests first.
    """
    access = Access() if access is None else access
    hosts = AllowedHosts() if hosts is None else hosts
    retained = RetainedRequests(runtime) if retained is None else retained
    conversations = Conversations() if conversations is None else conversations
    bodies = Bodies() if bodies is None else bodies
    leases = Leases(access)
    socket = NativeSocket(runtime, leases)
    responses_socket = ResponsesSocket(runtime, conversations, bodies, leases)

    async def close_sockets(_app: web.Application) -> None:
        await asyncio.gather(socket.close(), responses_socket.close())

    routes = [
        *_health_routes(runtime),
        document_route("Arriero, inference"),
        socket.route(),
        responses_socket.route(),
        *_api_routes(runtime, conversations, bodies, retained, restore_retained),
        *file_routes.routes(jobs),
        *batch_routes.routes(jobs),
        *more_routes,
    ]
    admit = guard(access, permissions(routes))
    outer = middleware(_error_answer, hosts, absent)
    app = web.Application(middlewares=[outer, admit, _refuse_anthropics_files])
    mount(app, routes)
    app[RETAINED_REQUESTS] = retained
    app[RESTORE_RETAINED] = restore_retained
    app[BODIES] = bodies
    app[FAULT_REPORTS] = FaultReports() if reports is None else reports
    app.on_response_prepare.append(tell_ignored)
    app.on_response_prepare.append(limit_headers(runtime))
    app.on_response_prepare.append(admit_origins(hosts))
    app.on_shutdown.append(close_sockets)
    return app


def _api_routes(
    runtime: FleetRuntime,
    conversations: Conversations,
    bodies: Bodies,
    retained: RetainedRequests,
    restore_retained: RestoreRetained,
) -> list[Route]:
    """Return the routes of all APIs."""
    return [
        *native_routes.routes(runtime),
        *models.routes(runtime),
        *completion_routes.routes(runtime),
        *query_routes.routes(runtime),
        *vllm_routes.routes(runtime),
        *llama_server_routes.routes(runtime),
        *responses_routes.routes(runtime, conversations, bodies, retained, restore_retained),
        *conversation_routes.routes(ConversationBook(conversations)),
        *anthropic_routes.routes(runtime, conversations, bodies),
        *ollama_routes.routes(runtime),
        *ollama_model_routes.routes(runtime),
    ]


_OPENAIS = (
    *("/v1", "/v2", "/chat/completions", "/completions", "/embeddings", "/models", "/rerank"),
    *vllm_routes.PATHS,
    *llama_server_routes.PATHS,
)
"""Paths whose errors have OpenAI's format, which most other servers use, too."""


_SHARED = ("/v1/models", "/v1/files", "/v1/skills", "/v1/complete")
"""Paths that Anthropic's clients call as well, and then expect errors in their own format."""


def _error_answer(request: web.Request) -> ErrorAnswer:
    path = request.path
    is_shared = any(_is_under(path, root) for root in _SHARED)
    if (is_shared and models.is_anthropics(request)) or _is_under(path, "/v1/messages"):
        return lambda error: anthropic_routes.error_answer(error, request.get(request_id_key))
    if path == "/" or (_is_under(path, "/api") and not _is_under(path, "/api/v1")):
        return ollama_routes.error_answer
    has_openais = any(_is_under(path, root) for root in _OPENAIS)
    return _openai_error_answer if has_openais else error_response


def _openai_error_answer(error: RequestError) -> web.Response:
    return error_response(error, openai_error)


def _is_under(path: str, root: str) -> bool:
    return f"{path}/".startswith(f"{root}/")


class Health(TypedDict):
    """The answer of `/health`: the process is alive."""

    status: Literal["ok"]


class SlotCounts(TypedDict):
    """The slots of all agents together."""

    total: Count
    busy: Count


class Readiness(TypedDict):
    """The answer of `/ready`: whether requests can be served now."""

    ready: bool
    slots: SlotCounts


def _health_routes(runtime: FleetRuntime) -> list[Route]:
    async def health(_request: web.Request) -> web.Response:
        return json_response(Health(status="ok"))

    async def ready(_request: web.Request) -> web.Response:
        totals = runtime.views.totals()
        is_ready = totals.is_ready and not totals.is_draining
        slots: SlotCounts = {"total": totals.slots_total, "busy": totals.slots_busy}
        body: Readiness = {"ready": is_ready, "slots": slots}
        return json_response(body, status=200 if is_ready else 503)

    alive = json_answer("The process is alive.", Health)
    answers = {
        200: json_answer("An agent with slots, or an agent that embeds, is connected.", Readiness),
        503: json_answer(
            "No such agent is connected, or the balancer is shutting down.", Readiness
        ),
    }
    health_doc = Doc("Health", "Whether the process is alive.", {200: alive})
    ready_doc = Doc("Ready", "Whether the fleet can serve requests now.", answers)
    return [
        Route("GET", "/health", Needs.NOTHING, health, health_doc),
        Route("GET", "/ready", Needs.NOTHING, ready, ready_doc),
    ]


# ---- what is not here


_NO_SOUND = "{path}: speech and transcription are not supported; models answer with text"

_NO_ASSISTANTS = "{path}: assistants are not supported; use /v1/responses and /v1/conversations"

_MISSING: Mapping[str, str] = {
    **{
        f"/api/v1/{name}": (
            "{path} is a path of the management port (--management-addr); this is the "
            "inference port"
        )
        for name in (
            *("agent-socket", "agents", "desired-state", "diary", "events", "history"),
            *("hosts", "keys", "models", "requests", "usage"),
        )
    },
    "/v1/messages/batches": (
        "{path}: batches of messages are not supported; /v1/batches takes chats, completions, "
        "responses and embeddings"
    ),
    "/v1/complete": "{path} is not supported; use /v1/messages",
    "/v1/skills": "{path}: skills are not supported; give the model tools",
    "/v1/vector_stores": (
        "{path}: vector stores are not supported; use your own store with vectors of "
        "/v1/embeddings, and order its results with /v1/rerank"
    ),
    "/v1/assistants": _NO_ASSISTANTS,
    "/v1/threads": _NO_ASSISTANTS,
    "/v1/fine_tuning": (
        "{path}: fine-tuning is not supported; train an adapter elsewhere, and agents can serve it"
    ),
    "/v1/moderations": "{path}: moderation is not supported; ask a model in /v1/chat/completions",
    "/v1/uploads": "{path}: uploads in parts are not supported; send the whole file to /v1/files",
    "/v1/containers": "{path}: containers are not supported; give the model a tool that runs code",
    "/v1/evals": "{path}: evaluations are not supported; /v1/batches answers many requests",
    "/v1/videos": "{path}: videos are not supported; models answer with text",
    "/v1/realtime": "{path}: voice sessions are not supported; /v1/responses answers with text",
    "/v1/audio": _NO_SOUND,
    "/v1/images": "{path}: drawing and editing images is not supported; models answer with text",
}
"""Missing parts of OpenAI's and Anthropic's APIs, by the beginning of the path."""

_UNSUPPORTED: Mapping[str, str] = {
    "/api/pull": "clients cannot pull models",
    "/api/push": "clients cannot push models",
    "/api/create": "clients cannot create models",
    "/api/copy": "clients cannot copy models",
    "/api/delete": "clients cannot delete models",
    "/api/blobs": "clients cannot upload models",
}
"""Missing parts of Ollama's API, by the beginning of the path."""

_DESIRED_STATE = (
    "an operator sets the desired state (`arriero apply`, or PUT /api/v1/desired-state on "
    "the management port), and agents download its models; /api/tags lists the models that "
    "are served"
)


@web.middleware
async def _refuse_anthropics_files(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse Anthropic's file calls, which use the same paths as OpenAI's."""
    if _is_under(request.path, "/v1/files") and models.is_anthropics(request):
        with RefusalReport(request):
            raise NotFound(
                "/v1/files: files are not stored for messages; send documents and pictures "
                "in the message itself"
            )
    return await handler(request)


def absent(path: str) -> RequestError:
    """Return the error for a path that does not exist."""
    shown = path[:200]
    if (sentence := _reason(_UNSUPPORTED, path)) is not None:
        return NotSupported(f"{shown}: {sentence}; {_DESIRED_STATE}")
    sentence = _reason(_MISSING, path) or "there is nothing at {path}"
    return NotFound(sentence.format(path=shown))


def _reason(reasons: Mapping[str, str], path: str) -> str | None:
    found = (reason for root, reason in reasons.items() if f"{path}/".startswith(f"{root}/"))
    return next(found, None)
