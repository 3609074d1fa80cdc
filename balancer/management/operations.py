"""Everything that the management port serves, as one OpenAPI document."""

from pydantic_core import to_json

from ...shared.errors import (
    AgentLost,
    InvalidRequest,
    NotFound,
    RateLimited,
    ShuttingDown,
    StoreUnavailable,
)
from ..api.native.operations import DOCUMENT, GENERATE, NATIVE_ERRORS
from ..api.openapi.document import (
    Answer,
    ErrorClass,
    Json,
    Operation,
    document,
    json_answer,
    parameter,
)
from . import answer_types
from .history import answer_types as history_types
from .jobs import operations as jobs
from .keys import operations as keys
from .request_filter import DEFAULT_LIMIT, MAX_LIMIT, STATES
from .session import operations as session
from .steering import operations as steering

_ID = parameter("id", "path", required=True)


def _operation(
    method: str,
    path: str,
    name: str,
    summary: str,
    *,
    answers: dict[int, Answer],
    errors: tuple[ErrorClass, ...] = (),
    parameters: tuple[Json, ...] = (),
    is_keyless: bool = False,
) -> Operation:
    return Operation(
        method=method,
        path=path,
        name=name,
        summary=summary,
        answers=answers,
        errors=errors,
        parameters=parameters,
        told=NATIVE_ERRORS,
        is_keyless=is_keyless,
    )


OPERATIONS = (
    _operation(
        "GET",
        "/health",
        "Health",
        "Whether the process is alive, and whether it reaches its store.",
        answers={200: json_answer("The process is alive.", history_types.ManagementHealth)},
        is_keyless=True,
    ),
    DOCUMENT,
    _operation(
        "GET",
        "/api/v1/about",
        "About",
        "The balancer's version, where clients reach it, and what is wrong with it.",
        answers={200: json_answer("What it is.", answer_types.About)},
    ),
    _operation(
        "GET",
        "/api/v1/balancers",
        "Balancers",
        "This balancer, and those that share its store.",
        answers={200: json_answer("Those that live.", answer_types.Balancers)},
    ),
    _operation(
        "GET",
        "/api/v1/agents",
        "Agents",
        "The connected agents.",
        answers={200: json_answer("All connected agents.", answer_types.Agents)},
    ),
    _operation(
        "GET",
        "/api/v1/agents/{id}",
        "OneAgent",
        "One agent.",
        parameters=(_ID,),
        answers={200: json_answer("The agent.", answer_types.Agent)},
        errors=(NotFound,),
    ),
    _operation(
        "GET",
        "/api/v1/agents/{id}/log",
        "AgentLog",
        "The last lines of an agent's log, at level info and above.",
        parameters=(_ID, parameter("after", "query", {"type": "integer", "minimum": 0})),
        answers={200: json_answer("The lines after `after`.", answer_types.AgentLog)},
        errors=(InvalidRequest, NotFound, RateLimited, AgentLost),
    ),
    _operation(
        "GET",
        "/api/v1/agents/{id}/log/events",
        "AgentLogEvents",
        "The same, and the lines that follow as they come; an event `lines` without any says that "
        "the stream is alive.",
        parameters=(
            _ID,
            parameter("after", "query", {"type": "integer", "minimum": 0}),
            parameter("Last-Event-ID", "header"),
            parameter("last_event_id", "query"),
        ),
        answers={
            200: Answer(
                "Server-sent events until the agent's link is gone.",
                {"text/event-stream": {"x-item-schema": answer_types.AgentLog}},
            )
        },
        errors=(InvalidRequest, NotFound, RateLimited, AgentLost),
    ),
    _operation(
        "GET",
        "/api/v1/requests",
        "Requests",
        "Queued and running requests, or those that ended, without their texts.",
        parameters=(
            parameter("state", "query", {"type": "string", "enum": [*sorted(STATES), "ended"]}),
            parameter("model", "query"),
            *(parameter(name, "query") for name in ("agent", "caller", "code", "before")),
            parameter(
                "limit",
                "query",
                {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            ),
        ),
        answers={
            200: json_answer(
                "The oldest requests that match; of those that ended, the latest.",
                answer_types.Requests | history_types.EndedRequests,
            )
        },
        errors=(InvalidRequest,),
    ),
    _operation(
        "GET",
        "/api/v1/history",
        "History",
        "Throughput, latencies, endings and the queue: an hour in seconds, a day in minutes.",
        parameters=(
            parameter("since", "query"),
            parameter("step", "query"),
            parameter("by", "query", {"type": "string", "enum": ["agent", "model"]}),
            parameter("name", "query"),
        ),
        answers={200: json_answer("Columns over times.", history_types.History)},
        errors=(InvalidRequest,),
    ),
    _operation(
        "GET",
        "/api/v1/usage",
        "Usage",
        "What callers used of models, by day: requests, errors, and tokens.",
        parameters=(
            *(parameter(name, "query") for name in ("since", "until")),
            parameter("by", "query", {"type": "string", "default": "caller"}),
        ),
        answers={200: json_answer("Sums, in the order of their columns.", history_types.Usage)},
        errors=(InvalidRequest, StoreUnavailable),
    ),
    _operation(
        "GET",
        "/api/v1/requests/{id}",
        "OneRequest",
        "A queued or running request, and what it can expect while it waits.",
        parameters=(_ID,),
        answers={200: json_answer("The request.", answer_types.ListedRequest)},
        errors=(NotFound,),
    ),
    _operation(
        "DELETE",
        "/api/v1/requests/{id}",
        "CancelRequest",
        "Cancels a request; its client keeps what was sent.",
        parameters=(_ID,),
        answers={202: json_answer("The request ends shortly.", answer_types.Cancelled)},
        errors=(NotFound,),
    ),
    _operation(
        "GET",
        "/api/v1/events",
        "Events",
        "The fleet: a `snapshot`, then a `delta` on each change; and `throughput`, each second.",
        parameters=(
            parameter("Last-Event-ID", "header"),
            parameter("last_event_id", "query"),
        ),
        answers={
            200: Answer(
                "Server-sent events without end.",
                {"text/event-stream": {"x-item-schema": answer_types.Event}},
            )
        },
        errors=(RateLimited, ShuttingDown),
    ),
    _operation(
        "GET",
        "/metrics",
        "Metrics",
        "Prometheus metrics.",
        answers={
            200: Answer(
                "All metrics, in the format that `Accept` prefers.",
                {"text/plain": {}, "application/openmetrics-text": {}},
            )
        },
    ),
    GENERATE,
    _operation(
        "GET",
        "/api/v1/agent-socket",
        "AgentSocket",
        "The agents' WebSocket.",
        answers={
            101: Answer("The WebSocket is open."),
        },
        errors=(InvalidRequest,),
    ),
    _operation(
        "GET",
        "/",
        "Dashboard",
        "The dashboard.",
        answers={200: Answer("The page.", {"text/html": {}}), 304: Answer("Unchanged.")},
        is_keyless=True,
    ),
    _operation(
        "GET",
        "/dashboard/{name}",
        "DashboardFile",
        "One of the dashboard's files.",
        parameters=(parameter("name", "path", required=True),),
        answers={
            200: Answer(
                "A file.",
                {"text/html": {}, "text/javascript": {}, "text/css": {}, "image/svg+xml": {}},
            ),
            304: Answer("Unchanged."),
        },
        errors=(NotFound,),
        is_keyless=True,
    ),
    *steering.OPERATIONS,
    *keys.OPERATIONS,
    *jobs.OPERATIONS,
    *session.OPERATIONS,
)


def management_json(version: str) -> bytes:
    """The document as it is served; `version` is the balancer's."""
    return to_json(
        document(
            title="Arriero, management",
            version=version,
            operations=OPERATIONS,
        )
    )
