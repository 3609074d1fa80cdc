"""The native API and the balancer's health as operations of an OpenAPI document."""

from ....shared.errors import RequestError
from ..openapi.answers import Form
from ..openapi.bodies import Body
from ..openapi.document import OF_MODELS, Answer, Errors, Operation, json_answer, streamed
from . import answer_types
from .queries import BODIES
from .requests import BATCH_BODY, GENERATE_BODY


def _code(error: RequestError) -> str:
    return error.code


NATIVE_ERRORS = Errors(answer_types.ErrorAnswer, _code)


def _events(whole: Form) -> Answer:
    """The three response forms, which depend on `stream` and `Accept`."""
    return streamed(
        "With `stream`, events, each a line or a `data:` line; otherwise one object.",
        whole,
        "application/x-ndjson",
        "text/event-stream",
        item=answer_types.NativeEvent,
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


def _asked(name: str, summary: str, form: Form) -> Operation:
    return _post(name, summary, BODIES[name], json_answer("The answer.", form))


def _get(
    path: str, name: str, summary: str, answers: dict[int, Answer], *, is_keyless: bool = False
) -> Operation:
    return Operation(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        answers=answers,
        told=NATIVE_ERRORS,
        is_keyless=is_keyless,
    )


HEALTH = _get(
    "/health",
    "Health",
    "Whether the process is alive.",
    {200: json_answer("The process is alive.", answer_types.Health)},
    is_keyless=True,
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
    _events(answer_types.Answer),
)

OPERATIONS = (
    HEALTH,
    _get(
        "/ready",
        "Ready",
        "Whether requests can be served at once.",
        {
            200: json_answer(
                "There is an agent with slots, or one that embeds.", answer_types.Readiness
            ),
            503: json_answer(
                "There is no such agent, or the balancer is shutting down.", answer_types.Readiness
            ),
        },
        is_keyless=True,
    ),
    DOCUMENT,
    GENERATE,
    _post(
        "generate_batch",
        "Answers many requests, each under its own id.",
        BATCH_BODY,
        _events(answer_types.BatchAnswer),
    ),
    _asked("embed", "Turns texts into vectors.", answer_types.EmbedAnswer),
    _asked("tokenize", "Turns a text into tokens.", answer_types.TokenizeAnswer),
    _asked("detokenize", "Turns tokens into a text.", answer_types.DetokenizeAnswer),
    _asked("count_tokens", "Counts the tokens of a prompt.", answer_types.CountAnswer),
    Operation(
        method="GET",
        path="/api/v1/socket",
        name="Socket",
        summary="A WebSocket that speaks JSON-RPC 2.0 and carries many requests at once.",
        answers={
            101: Answer("The WebSocket is open."),
            400: json_answer("This is no upgrade request.", NATIVE_ERRORS.form),
        },
        told=NATIVE_ERRORS,
    ),
)
