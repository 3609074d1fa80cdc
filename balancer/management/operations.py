"""Everything that the management port serves, as one OpenAPI document."""

from functools import cache

from pydantic_core import to_json

from ...shared.errors import NotFound, RateLimited, ShuttingDown
from ...shared.messages import Issue, ModelInfo
from ..api.native.operations import DOCUMENT, GENERATE, HEALTH, NATIVE_ERRORS
from ..api.openapi.document import (
    Answer,
    ErrorClass,
    Json,
    Operation,
    document,
    json_answer,
    parameter,
)
from ..api.openapi.schemas import (
    COUNT,
    INTEGER,
    NUMBER,
    STRING,
    Schema,
    fields_of,
    listing,
    mapping,
    nullable,
    one_of,
    record,
    ref,
)

_SLOTS = record({"total": COUNT, "busy": COUNT})
_RATE = nullable(NUMBER)

COMPONENTS: dict[str, Schema] = {
    "Statistics": record(
        {
            "decode_tokens_per_second": _RATE,
            "prefill_tokens_per_second": _RATE,
            "throughput_tokens_per_second": _RATE,
            "average_sequences": _RATE,
            "sequences": record({"running": COUNT, "waiting": COUNT}),
            "cells": record({"total": COUNT, "used": COUNT, "kept": COUNT, "parked": COUNT}),
            "cached_tokens_total": COUNT,
            "computed_tokens_total": COUNT,
            "completion_tokens_total": COUNT,
            "drafted_tokens_total": COUNT,
            "accepted_tokens_total": COUNT,
            "preemptions_total": COUNT,
            "stalls_total": COUNT,
            "stall_seconds_total": NUMBER,
            "busy_seconds_total": NUMBER,
        }
    ),
    "Agent": record(
        {
            "id": STRING,
            "name": STRING,
            "labels": mapping(STRING),
            "version": STRING,
            "state": one_of("ready", "draining", "no_model"),
            "slots": _SLOTS,
            "model": nullable(record(fields_of(ModelInfo))),
            "issues": listing(record(fields_of(Issue))),
            "download": {"type": "null"},
            "throughput": record({"tokens_total": COUNT, "tokens_per_second": _RATE}),
            "statistics": nullable(ref("Statistics")),
            "connected_seconds": NUMBER,
        }
    ),
    "Request": record(
        {
            "id": STRING,
            "state": one_of("queued", "assigned", "streaming"),
            "model": nullable(STRING),
            "agent": nullable(STRING),
            "waited_seconds": NUMBER,
            "age_seconds": NUMBER,
            "num_tokens": COUNT,
            "priority": INTEGER,
        }
    ),
}

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
    )


OPERATIONS = (
    HEALTH,
    DOCUMENT,
    _operation(
        "GET",
        "/api/v1/agents",
        "Agents",
        "Who is connected.",
        answers={200: json_answer("All of them.", record({"agents": listing(ref("Agent"))}))},
    ),
    _operation(
        "GET",
        "/api/v1/agents/{id}",
        "OneAgent",
        "One agent.",
        parameters=(_ID,),
        answers={200: json_answer("It.", ref("Agent"))},
        errors=(NotFound,),
    ),
    _operation(
        "GET",
        "/api/v1/requests",
        "Requests",
        "Queued and running requests, without their texts.",
        answers={200: json_answer("All of them.", record({"requests": listing(ref("Request"))}))},
    ),
    _operation(
        "DELETE",
        "/api/v1/requests/{id}",
        "CancelRequest",
        "Cancels one; its client keeps what it has.",
        parameters=(_ID,),
        answers={202: json_answer("It ends as soon as may be.", record({"id": STRING}))},
        errors=(NotFound,),
    ),
    _operation(
        "GET",
        "/api/v1/events",
        "Events",
        "The fleet: `fleet`, all of it first and then on change, and `throughput`, each second.",
        answers={200: Answer("Server-sent events without end.", {"text/event-stream": {}})},
        errors=(RateLimited, ShuttingDown),
    ),
    _operation(
        "GET",
        "/metrics",
        "Metrics",
        "Prometheus metrics.",
        answers={
            200: Answer(
                "All of them, in the format that `Accept` prefers.",
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
            400: Answer("This is no upgrade request.", {"text/plain": {}}),
        },
    ),
    _operation(
        "GET",
        "/",
        "Dashboard",
        "The dashboard.",
        answers={200: Answer("The page.", {"text/html": {}}), 304: Answer("You have it.")},
    ),
    _operation(
        "GET",
        "/dashboard/{name}",
        "DashboardFile",
        "What the dashboard consists of.",
        parameters=(parameter("name", "path", required=True),),
        answers={
            200: Answer(
                "A file.",
                {"text/html": {}, "text/javascript": {}, "text/css": {}, "image/svg+xml": {}},
            ),
            304: Answer("You have it."),
        },
        errors=(NotFound,),
    ),
)


@cache
def management_json(version: str) -> bytes:
    """The document as it is served; `version` is the balancer's."""
    return to_json(
        document(
            title="Arriero, management",
            version=version,
            operations=OPERATIONS,
            components=COMPONENTS,
        )
    )
