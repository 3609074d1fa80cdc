"""The management port: operators' views and controls, the agents' socket, the dashboard."""

from collections.abc import Callable, Mapping
from importlib.metadata import version

from aiohttp import hdrs, web

from ...shared.errors import InvalidRequest, NotFound, RateLimited, RequestError, ShuttingDown
from ...shared.messages import Issue
from ...shared.quantities import Address
from ..api.common.answering import uncached_json
from ..api.guard import Leases, Needs, guard
from ..api.native.routes import generate_route
from ..api.openapi.document import AnswerDoc, Doc, json_answer, parameter
from ..api.route import Route, document_route, mount, permissions
from ..api.transport.bodies import BODIES, MAX_BODY_BYTES, ONLY_JSON
from ..api.transport.connections import watch_frames
from ..api.transport.doors import report_at_door
from ..api.transport.http import Handler, middleware, nothing_at
from ..cluster.cluster_view import ClusterView
from ..cluster.peering import balancers_of
from ..cluster.worker import Pipes
from ..fleet.runtime import agent_socket
from ..fleet.runtime.agent_socket import Workers
from ..management import page
from ..parts import Parts
from ..settings import BalancerSettings
from .agent_log import agent_log_routes
from .answer_types import About, Event
from .balancers import alone, balancer_routes
from .diary_routes import routes as diary_routes
from .events import EventHub, stream_events
from .fit_routes import routes as fit_routes
from .fleet_routes import fleet_routes
from .history.history_routes import history_routes
from .history.usage_routes import usage_routes
from .job_routes import routes as job_routes
from .key_routes import routes as key_routes
from .metrics.metrics import Metrics
from .session_routes import by_cookie
from .session_routes import routes as session_routes
from .steering.routes import routes as steering_routes


def management_app(
    parts: Parts, settings: BalancerSettings, addresses: Mapping[str, Address]
) -> web.Application:
    """Return the app of the management port.

    The caller adds the ports to `addresses` by name after they were opened.
    """
    access = parts.access
    routes = _routes(parts, settings, addresses)
    admit = guard(access, permissions(routes), by_cookie(access, parts.sessions))
    app = web.Application(
        middlewares=[middleware(hosts=parts.hosts, absent=absent), admit],
        client_max_size=MAX_BODY_BYTES,
    )
    mount(app, routes)
    app[BODIES] = parts.bodies
    app[ONLY_JSON] = True  # its pages have cookies
    app.on_response_prepare.append(_forbid_sniffing)
    return app


def _routes(
    parts: Parts, settings: BalancerSettings, addresses: Mapping[str, Address]
) -> list[Route]:
    runtime, access, peers = parts.runtime, parts.access, parts.peers
    leases, cluster = Leases(access), parts.cluster

    def inference_port() -> int | None:
        inference = addresses.get("inference")
        return None if inference is None else inference.port

    history = parts.persistence.history
    self_alone = alone(settings.balancer_name, settings.public_url)
    return [
        *history_routes(history, parts.store_status, cluster),
        about_route(
            inference_port,
            settings.public_url,
            parts.issues,
            is_lasting=parts.persistence.store.is_lasting,
        ),
        *balancer_routes(balancers_of(peers, self_alone)),
        *usage_routes(history),
        *fleet_routes(runtime, history, cluster),
        *agent_log_routes(runtime, leases),
        _events_route(parts.hub, leases),
        metrics_route(parts.metrics, cluster),
        *steering_routes(
            runtime,
            parts.desired_state,
            parts.drains,
            parts.diary,
            None if peers is None else peers.retry,
        ),
        *fit_routes(runtime),
        *diary_routes(parts.diary, leases),
        _agent_route(
            agent_socket.AgentSocket(
                runtime,
                needs_certificate=settings.agent_ca is not None,
                workers=workers_of(parts.pipes),
                admission=leases,
                watch=watch_frames,
                report=report_at_door,
            ).handle
        ),
        *key_routes(parts.keys, parts.diary),
        *session_routes(access, parts.sessions),
        *job_routes(parts.jobs),
        generate_route(runtime),  # for the dashboard, which asks no other origin
        *page.routes(),
        document_route("Arriero, management"),
    ]


_INFERENCE = (
    *("/v1", "/v2", "/chat", "/completion", "/completions", "/embeddings", "/rerank"),
    *("/api/chat", "/api/generate", "/api/tags", "/api/embed"),
    *(f"/api/v1/{name}" for name in ("socket", "embed", "tokenize", "detokenize", "count_tokens")),
)
"""Beginnings of paths that belong to the inference port."""


def absent(path: str) -> RequestError:
    """Return the error for a path that does not exist."""
    if any(f"{path}/".startswith(f"{root}/") for root in _INFERENCE):
        return NotFound(
            f"{path[:200]} is on the inference port (--inference-addr); this is the management port"
        )
    return nothing_at(path)


def _events_route(hub: EventHub, leases: Leases) -> Route:
    async def events(request: web.Request) -> web.StreamResponse:
        return await stream_events(hub, request, leases)

    doc = Doc(
        "Events",
        "The fleet: a `snapshot`, then a `delta` on each change; and `throughput`, each second.",
        {
            200: AnswerDoc(
                "Server-sent events without end.", {"text/event-stream": {"x-item-schema": Event}}
            )
        },
        parameters=(parameter("Last-Event-ID", "header"), parameter("last_event_id", "query")),
        errors=(RateLimited, ShuttingDown),
    )
    return Route("GET", "/api/v1/events", Needs.VIEW, events, doc, is_endless=True)


def metrics_route(metrics: Metrics, cluster: ClusterView | None = None) -> Route:
    """Return `/metrics`, which the inference port also serves if operators want this.

    If several processes share a port, each process answers for all of them.
    """
    cluster = cluster or ClusterView()

    async def scrape(request: web.Request) -> web.Response:
        accept = request.headers.get(hdrs.ACCEPT, "")
        own, content_type = metrics.render(accept)
        body = await cluster.metrics(accept, own)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    doc = Doc(
        "Metrics",
        "Prometheus metrics.",
        {
            200: AnswerDoc(
                "All metrics, in the format that `Accept` prefers.",
                {"text/plain": {}, "application/openmetrics-text": {}},
            )
        },
    )
    return Route("GET", "/metrics", Needs.VIEW, scrape, doc)


def _agent_route(handler: Handler) -> Route:
    doc = Doc(
        "AgentSocket",
        "The agents' WebSocket.",
        {101: AnswerDoc("The WebSocket is open.")},
        errors=(InvalidRequest,),
    )
    return Route("GET", agent_socket.PATH, Needs.JOIN, handler, doc)


async def _forbid_sniffing(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["X-Content-Type-Options"] = "nosniff"


def workers_of(pipes: Pipes | None) -> Workers | None:
    """Return the workers to which agents connect, if this process is one of several."""
    if pipes is None:
        return None
    return Workers(pipes.place.run, pipes.place.num, lambda: pipes.living)


def about_route(
    inference_port: Callable[[], int | None],
    public_url: str | None,
    issues: Callable[[], tuple[Issue, ...]],
    *,
    is_lasting: bool,
) -> Route:
    """Return the route of the balancer's own data, which the dashboard's commands and issues need.

    `inference_port` is called for each request, because ports open after the routes are made.
    """

    async def about(_request: web.Request) -> web.Response:
        about = About(
            version=version("arriero"),
            inference_port=inference_port(),
            public_url=public_url,
            is_lasting=is_lasting,
            issues=issues(),
        )
        return uncached_json(about)

    doc = Doc(
        "About",
        "The balancer's version, where clients reach it, and what is wrong with it.",
        {200: json_answer("What it is.", About)},
    )
    return Route("GET", "/api/v1/about", Needs.ANY, about, doc)
