"""The management port: what operators see and steer, the agents' socket, the dashboard."""

from collections.abc import Callable, Sequence

from aiohttp import hdrs, web

from ...shared.errors import InvalidRequest, RateLimited, ShuttingDown
from ..access.access import Access
from ..access.key_keeper import KeyKeeper
from ..access.sessions import Sessions
from ..api.access.admission import Admission
from ..api.access.guard import ACCESS, guard
from ..api.access.permissions import Needs
from ..api.native.routes import generate_route
from ..api.openapi.document import Answer, Doc, parameter
from ..api.route import Route, document_route, mount, permissions
from ..api.transport.bodies import BODIES, MAX_BODY_BYTES, Bodies
from ..api.transport.connections import watch_frames
from ..api.transport.hosts import AllowedHosts
from ..api.transport.http import Handler, middlewares
from ..fleet.runtime import agent_socket
from ..fleet.runtime.agent_socket import Workers
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..history.history_task import History
from ..jobs.jobs import Jobs
from ..store.records import StoreStatus
from . import page
from .about import AboutPorts, Issues, about_routes, no_issues, unknown_ports
from .agent_log import agent_log_routes
from .answer_types import Event
from .balancers import ListBalancers, alone, balancer_routes
from .elsewhere.everywhere import Everywhere
from .events import EventHub, stream_events
from .fleet_routes import fleet_routes
from .history.history_routes import history_routes
from .history.usage_routes import usage_routes
from .jobs.routes import routes as job_routes
from .keys.routes import routes as key_routes
from .metrics.metrics import Metrics
from .session.browser_sessions import BrowserSessions, TellSession, nobody
from .session.routes import routes as session_routes
from .steering.drains import DrainKeeper
from .steering.keeper import DesiredStateKeeper
from .steering.routes import RetryElsewhere, by_nobody
from .steering.routes import routes as steering_routes


def management_app(
    runtime: FleetRuntime,
    hub: EventHub,
    metrics: Metrics,
    *,
    keeper: DesiredStateKeeper,
    drains: DrainKeeper,
    history: History | None = None,
    store_status: Callable[[], StoreStatus] = StoreStatus,
    bodies: Bodies | None = None,
    hosts: AllowedHosts | None = None,
    agents_show_certificates: bool = False,
    workers: Workers | None = None,
    ports: AboutPorts = unknown_ports,
    issues: Issues = no_issues,
    access: Access | None = None,
    keys: KeyKeeper,
    sessions: Sessions | None = None,
    tell_session: TellSession = nobody,
    jobs: Jobs | None = None,
    everywhere: Everywhere | None = None,
    retry_elsewhere: RetryElsewhere = by_nobody,
    list_balancers: ListBalancers | None = None,
) -> web.Application:
    """Everything that the management port serves. Without `access` everybody may come in.

    `everywhere` asks other balancers over the same store, `retry_elsewhere` tells them.
    """
    history = History() if history is None else history
    access = Access() if access is None else access
    everywhere = everywhere or Everywhere()
    browsers = BrowserSessions(
        access, Sessions() if sessions is None else sessions, tell=tell_session
    )
    routes = [
        *history_routes(history, store_status, everywhere),
        *about_routes(ports, issues),
        *balancer_routes(list_balancers or alone()),
        *usage_routes(history),
        *fleet_routes(runtime, history, everywhere),
        *agent_log_routes(runtime, Admission(access)),
        *_watching_routes(hub, metrics, Admission(access), everywhere),
        *steering_routes(
            runtime,
            keeper,
            drains,
            retry_elsewhere,
        ),
        _agent_route(
            agent_socket.agent_handler(
                runtime,
                needs_certificate=agents_show_certificates,
                workers=workers,
                admission=Admission(access),
                watch=watch_frames,
            )
        ),
        *key_routes(keys),
        *session_routes(browsers),
        *job_routes(jobs),
        generate_route(runtime),  # for the dashboard, which asks no other origin
        *page.routes(),
        document_route("Arriero, management"),
    ]
    app = _guarded_app(routes, access, browsers, hosts)
    app[BODIES] = Bodies() if bodies is None else bodies
    return app


def _guarded_app(
    routes: Sequence[Route], access: Access, browsers: BrowserSessions, hosts: AllowedHosts | None
) -> web.Application:
    """What comes is checked as it is on both ports."""
    admit = guard(access, permissions(routes), browsers.identify)
    app = web.Application(
        middlewares=[*middlewares(hosts=hosts), admit], client_max_size=MAX_BODY_BYTES
    )
    mount(app, routes)
    app[ACCESS] = access
    app.on_response_prepare.append(_forbid_sniffing)
    return app


def _watching_routes(
    hub: EventHub, metrics: Metrics, admission: Admission, everywhere: Everywhere
) -> list[Route]:
    async def events(request: web.Request) -> web.StreamResponse:
        return await stream_events(hub, request, admission)

    doc = Doc(
        "Events",
        "The fleet: a `snapshot`, then a `delta` on each change; and `throughput`, each second.",
        {
            200: Answer(
                "Server-sent events without end.", {"text/event-stream": {"x-item-schema": Event}}
            )
        },
        parameters=(parameter("Last-Event-ID", "header"), parameter("last_event_id", "query")),
        errors=(RateLimited, ShuttingDown),
    )
    return [
        Route("GET", "/api/v1/events", Needs.VIEW, events, doc, is_endless=True),
        metrics_route(metrics, everywhere),
    ]


def metrics_route(metrics: Metrics, everywhere: Everywhere | None = None) -> Route:
    """`/metrics`; the inference port serves it as well where operators want that.

    Where several processes share a port, any of them answers for all.
    """
    everywhere = everywhere or Everywhere()

    async def scrape(request: web.Request) -> web.Response:
        accept = request.headers.get(hdrs.ACCEPT, "")
        own, content_type = metrics.render(accept)
        body = await everywhere.metrics(accept, own)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    doc = Doc(
        "Metrics",
        "Prometheus metrics.",
        {
            200: Answer(
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
        {101: Answer("The WebSocket is open.")},
        errors=(InvalidRequest,),
    )
    return Route("GET", agent_socket.PATH, Needs.JOIN, handler, doc)


async def _forbid_sniffing(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["X-Content-Type-Options"] = "nosniff"
