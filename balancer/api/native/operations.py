"""The native API and the balancer's health as operations of an OpenAPI document."""

from typing import get_args

from ....shared.errors import RequestError
from ....shared.inference import Timings, TokenKind, Usage
from ..openapi.bodies import Body
from ..openapi.document import OF_MODELS, Answer, Errors, Operation, json_answer, streamed
from ..openapi.schemas import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    STRING,
    Schema,
    either,
    fields_of,
    listing,
    nullable,
    one_of,
    record,
    ref,
)
from .queries import BODIES
from .requests import BATCH_BODY, GENERATE_BODY


def _code(error: RequestError) -> str:
    return error.code


PUBLIC_ERROR = record({"code": STRING, "message": STRING, "retryable": BOOLEAN}, {"field": STRING})
NATIVE_ERRORS = Errors("Error", record({"error": PUBLIC_ERROR}), _code)

_CALL = record({"id": STRING, "name": STRING, "arguments": STRING})
_DONE = {
    "finish_reason": one_of("stop", "length", "tool_calls", "cancelled"),
    "usage": record(fields_of(Usage)),
    "timings": record(fields_of(Timings)),
    "agent": STRING,
}
_STOPPED = {"stop_string": STRING}
_WHOLE = {
    "logprobs": listing(ref("LogProb")),
    "prompt_logprobs": listing(ref("LogProb")),
    "reasoning": STRING,
    "tool_calls": listing(_CALL),
    "warnings": listing(record({"code": STRING, "message": STRING})),
}
_LIKELY = {"token": STRING, "logprob": nullable(NUMBER), "bytes": listing(INTEGER)}
_VECTOR = either(listing(NUMBER), STRING)


def _event(name: str, fields: dict[str, Schema], optional: dict[str, Schema]) -> Schema:
    return record({"event": one_of(name), "id": STRING, **fields}, optional)


COMPONENTS: dict[str, Schema] = {
    "LogProb": record({**_LIKELY, "top_logprobs": listing(record(_LIKELY))}),
    "Answer": record({"id": STRING, **_DONE, "text": STRING}, {**_STOPPED, **_WHOLE}),
    "Event": either(
        _event(
            "token",
            {"kind": one_of(*get_args(TokenKind)), "text": STRING},
            {"logprobs": listing(ref("LogProb"))},
        ),
        _event("tool_call_started", {"call": record({"id": STRING, "name": STRING})}, {}),
        _event("tool_call", {"call": _CALL}, {}),
        _event("warning", {"code": STRING, "message": STRING}, {}),
        _event("done", _DONE, _STOPPED),
        _event("error", {"error": PUBLIC_ERROR}, {}),
    ),
    "FailedAnswer": record({"id": STRING, "error": PUBLIC_ERROR}),
    "Embedding": either(
        record({"index": COUNT, "embedding": _VECTOR, "num_tokens": COUNT}),
        record({"index": COUNT, "error": PUBLIC_ERROR}),
    ),
    "Readiness": record(
        {"ready": BOOLEAN, "slots": record({"total": COUNT, "busy": COUNT})},
    ),
}


def _events(whole: Schema) -> Answer:
    """Which of the three it is follows from `stream` and `Accept`."""
    return streamed(
        "With `stream` events, each a line or a `data:` line; else all in one object.",
        whole,
        "application/x-ndjson",
        "text/event-stream",
        item=ref("Event"),
    )


def _post(name: str, summary: str, body: Body, answer: Answer) -> Operation:
    return Operation(
        method="POST",
        path=f"/api/v1/{name}",
        name="".join(word.capitalize() for word in name.split("_")),
        summary=summary,
        body=body,
        answers={200: answer},
        errors=OF_MODELS,
        told=NATIVE_ERRORS,
    )


def _asked(name: str, summary: str, fields: dict[str, Schema]) -> Operation:
    optional = {"bytes": STRING} if name == "detokenize" else None
    schema = record({"id": STRING, **fields}, optional)
    return _post(name, summary, BODIES[name], json_answer("The answer.", schema))


def _get(path: str, name: str, summary: str, answers: dict[int, Answer]) -> Operation:
    return Operation(
        method="GET", path=path, name=name, summary=summary, answers=answers, told=NATIVE_ERRORS
    )


HEALTH = _get(
    "/health",
    "Health",
    "Whether the process lives.",
    {200: json_answer("It does.", record({"status": one_of("ok")}))},
)
DOCUMENT = _get(
    "/openapi.json",
    "Document",
    "This document.",
    {200: json_answer("An OpenAPI 3.1 document.", {"type": "object"})},
)

GENERATE = _post(
    "generate",
    "Answers one prompt or conversation; exactly one of `prompt` and `messages` is given.",
    GENERATE_BODY,
    _events(ref("Answer")),
)

OPERATIONS = (
    HEALTH,
    _get(
        "/ready",
        "Ready",
        "Whether requests can be served at once.",
        {
            200: json_answer("There is a slot, or an agent that embeds.", ref("Readiness")),
            503: json_answer("There is none, or the balancer is shutting down.", ref("Readiness")),
        },
    ),
    DOCUMENT,
    GENERATE,
    _post(
        "generate_batch",
        "Answers many, each under its own id.",
        BATCH_BODY,
        _events(record({"results": listing(either(ref("Answer"), ref("FailedAnswer")))})),
    ),
    _asked(
        "embed",
        "Turns texts into vectors.",
        {
            "embeddings": listing(ref("Embedding")),
            "usage": record({"prompt_tokens": COUNT}),
        },
    ),
    _asked(
        "tokenize",
        "Turns a text into tokens.",
        {"tokens": listing(COUNT), "num_tokens": COUNT},
    ),
    _asked("detokenize", "Turns tokens into a text.", {"text": STRING}),
    _asked("count_tokens", "Counts the tokens of a prompt.", {"num_tokens": COUNT}),
    Operation(
        method="GET",
        path="/api/v1/socket",
        name="Socket",
        summary="A WebSocket that speaks JSON-RPC 2.0 and carries many requests at once.",
        answers={
            101: Answer("The WebSocket is open."),
            400: json_answer("This is no upgrade request.", ref(NATIVE_ERRORS.name)),
        },
        told=NATIVE_ERRORS,
    ),
)
