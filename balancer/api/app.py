"""The inference port: all APIs over one fleet runtime."""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version

from aiohttp import web

from ...shared.errors import RequestError
from ..access.access import Access
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.runtime.kept_requests import KeptRequests
from ..jobs.jobs import Jobs
from .absent import absent
from .access.admission import Admission
from .access.guard import ACCESS, guard
from .access.permissions import INFERENCE
from .anthropic import routes as anthropic_routes
from .common import models
from .common.answering import json_response
from .common.opening import KEPT_REQUESTS, RECALL, Recall, no_recall
from .conversations import Conversations
from .document import inference_json
from .fields.reading import tell_ignored
from .limit_headers import limit_headers
from .native import routes
from .native.answer_types import Health, Readiness, SlotCounts
from .native.web_socket import NativeSocket
from .ollama import model_routes as ollama_model_routes
from .ollama import routes as ollama_routes
from .openai.batches import batch_routes, file_routes
from .openai.completions import routes as completion_routes
from .openai.errors import openai_error
from .openai.queries import routes as query_routes
from .openai.responses import routes as responses_routes
from .openapi.serve import openapi_routes
from .transport.bodies import BODIES, Bodies
from .transport.door_reports import DOOR_REPORTS, DoorReports
from .transport.hosts import AllowedHosts
from .transport.http import ErrorAnswer, error_response, middlewares
from .vllm import routes as vllm_routes


def inference_app(
    runtime: FleetRuntime,
    conversations: Conversations | None = None,
    *,
    bodies: Bodies | None = None,
    hosts: AllowedHosts | None = None,
    reports: DoorReports | None = None,
    access: Access | None = None,
    kept: KeptRequests | None = None,
    jobs: Jobs | None = None,
    recall: Recall = no_recall,
    more_routes: Sequence[web.RouteDef] = (),
) -> web.Application:
    """Run it with `handler_cancellation=True`, so that a disconnect cancels the handler.

    `conversations` stores conversations that later requests continue, `bodies` limits request
    bodies, `kept` holds requests that outlive their connection (`recall` asks the store for those
    of other runs of the balancer), `hosts` lists the host names that
    are allowed besides addresses, and `reports` records faulty requests for operators; each has a
    default. Without `access` everybody may come in; without `jobs` there are no files and batches.
    `more_routes` are served besides. The app's shutdown closes the open WebSockets; requests
    should have been drained before.
    """
    access = Access() if access is None else access
    socket = NativeSocket(runtime, Admission(access))

    async def close_sockets(_app: web.Application) -> None:
        await socket.close()

    app = web.Application(
        middlewares=[*middlewares(_error_answer, hosts, absent), guard(access, INFERENCE)]
    )
    app[ACCESS] = access
    kept = KeptRequests(runtime) if kept is None else kept
    app[KEPT_REQUESTS] = kept
    app[RECALL] = recall
    app[BODIES] = Bodies() if bodies is None else bodies
    app[DOOR_REPORTS] = DoorReports() if reports is None else reports
    app.on_response_prepare.append(tell_ignored)
    app.on_response_prepare.append(limit_headers(runtime))
    conversations = Conversations() if conversations is None else conversations
    app.add_routes(
        [
            *_health_routes(runtime),
            *openapi_routes(partial(inference_json, version("arriero"))),
            *socket.routes(),
            *_api_routes(runtime, conversations, kept, recall),
            *file_routes.routes(jobs),
            *batch_routes.routes(jobs),
            *more_routes,
        ]
    )
    app.on_shutdown.append(close_sockets)
    return app


def _api_routes(
    runtime: FleetRuntime, conversations: Conversations, kept: KeptRequests, recall: Recall
) -> list[web.AbstractRouteDef]:
    """Of all APIs: the native one, OpenAI's, Anthropic's, Ollama's and vLLM's."""
    return [
        *routes.routes(runtime),
        *models.routes(runtime),
        *completion_routes.routes(runtime),
        *query_routes.routes(runtime),
        *vllm_routes.routes(runtime),
        *responses_routes.routes(runtime, conversations, kept, recall),
        *anthropic_routes.routes(runtime, conversations),
        *ollama_routes.routes(runtime),
        *ollama_model_routes.routes(runtime),
    ]


def _error_answer(request: web.Request) -> ErrorAnswer:
    path = request.path
    is_anthropics = _is_under(path, "/v1/models") and models.is_anthropics(request)
    if is_anthropics or _is_under(path, "/v1/messages"):
        return anthropic_routes.error_answer
    if path == "/" or (_is_under(path, "/api") and not _is_under(path, "/api/v1")):
        return ollama_routes.error_answer
    has_openais = _is_under(path, "/v1") or path in vllm_routes.PATHS
    return _openai_error_answer if has_openais else error_response


def _openai_error_answer(error: RequestError) -> web.Response:
    return error_response(error, openai_error)


def _is_under(path: str, root: str) -> bool:
    return f"{path}/".startswith(f"{root}/")


def _health_routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    async def health(_request: web.Request) -> web.Response:
        return json_response(Health(status="ok"))

    async def ready(_request: web.Request) -> web.Response:
        totals = runtime.totals()
        is_ready = totals.is_ready and not totals.is_draining
        slots: SlotCounts = {"total": totals.slots_total, "busy": totals.slots_busy}
        body: Readiness = {"ready": is_ready, "slots": slots}
        return json_response(body, status=200 if is_ready else 503)

    return [web.get("/health", health), web.get("/ready", ready)]
