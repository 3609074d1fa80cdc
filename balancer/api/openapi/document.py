"""An API as an OpenAPI 3.1 document: its operations, what they take, and how they answer.

Which errors an operation can end with is said by their classes; their statuses and what they mean
follow from the tree.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any

from ....shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    FirstTokenTimeout,
    Forbidden,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    NotSupported,
    PromptTooLong,
    QueueFull,
    QueueTimeout,
    RequestError,
    RequestTimeout,
    RequestTooLarge,
    ShuttingDown,
    TokenTimeout,
    status_of,
)
from .bodies import Body
from .schemas import STRING, Schema, ref

JSON = "application/json"

ErrorClass = type[RequestError]
Json = dict[str, Any]

ALWAYS: tuple[ErrorClass, ...] = (Forbidden, InternalError)
OF_BODIES: tuple[ErrorClass, ...] = (InvalidRequest, RequestTooLarge)
OF_MODELS: tuple[ErrorClass, ...] = (
    *(PromptTooLong, ModelNotFound, Cancelled, EngineFailed, NotSupported, AgentLost, QueueFull),
    *(ShuttingDown, QueueTimeout, FirstTokenTimeout, TokenTimeout, RequestTimeout),
)
"""What can become of a request that an agent has to answer."""


@dataclass(frozen=True, slots=True)
class Errors:
    """How an API tells errors: the name of the component, its schema, and what it calls them.

    `status` is for an API that has statuses of its own.
    """

    name: str
    schema: Schema
    word: Callable[[RequestError], object]
    status: Callable[[RequestError], int] = status_of


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no error: what it is, by media type, as the document says it."""

    description: str
    content: Mapping[str, Json] = field(default_factory=dict)


def json_answer(description: str, schema: Schema) -> Answer:
    """An answer in one piece."""
    return Answer(description, {JSON: {"schema": schema}})


def streamed(description: str, whole: Schema, *kinds: str, item: Schema | None = None) -> Answer:
    """An answer that is a stream of one of `kinds`, of `item`s, or `whole` in one piece.

    OpenAPI 3.1 has no word of its own for what a stream consists of.
    """
    events = {} if item is None else {"x-item-schema": item}
    return Answer(description, {**dict.fromkeys(kinds, events), JSON: {"schema": whole}})


def events_or(name: str, ends: str) -> Answer:
    """The component `name`, or with `stream` its parts as server-sent events."""
    return streamed(
        f"With `stream` server-sent events, the last of which is {ends}; else all in one object.",
        ref(name),
        "text/event-stream",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. `name` is unique."""

    method: str
    path: str
    name: str
    summary: str
    answers: Mapping[int, Answer]
    errors: tuple[ErrorClass, ...] = ()
    told: Errors
    body: Body | None = None
    parameters: tuple[Json, ...] = ()


def parameter(name: str, place: str, schema: Schema = STRING, *, required: bool = False) -> Json:
    """A parameter; `place` is `path`, `query` or `header`."""
    return {"name": name, "in": place, "required": required, "schema": schema}


def document(
    *,
    title: str,
    version: str,
    operations: Sequence[Operation],
    components: Mapping[str, Schema],
) -> Json:
    """The whole document, as JSON values. `components` are those that answers refer to."""
    schemas: dict[str, Schema] = dict(components)
    paths: dict[str, Json] = defaultdict(dict)
    for operation in operations:
        paths[operation.path][operation.method.lower()] = _operation(operation)
        schemas[operation.told.name] = operation.told.schema
        if operation.body is not None:
            schemas |= operation.body.schemas()
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": dict(paths),
        "components": {"schemas": schemas},
    }


def _operation(operation: Operation) -> Json:
    described: Json = {"operationId": operation.name, "summary": operation.summary}
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body is not None:
        described["requestBody"] = operation.body.described()
    responses = {str(status): _answer(answer) for status, answer in operation.answers.items()}
    return described | {"responses": responses | _errors(operation)}


def _answer(answer: Answer) -> Json:
    described: Json = {"description": answer.description}
    if answer.content:
        described["content"] = dict(answer.content)
    return described


def _errors(operation: Operation) -> Json:
    """By status. One that is also an answer's, as of a probe, is left to that."""
    bodies = OF_BODIES if operation.body is not None else ()
    by_status: dict[int, list[ErrorClass]] = defaultdict(list)
    for error in dict.fromkeys((*ALWAYS, *bodies, *operation.errors)):
        by_status[operation.told.status(error(""))].append(error)
    return {
        str(status): _error_answer(operation.told, errors)
        for status, errors in sorted(by_status.items())
        if status not in operation.answers
    }


def _error_answer(told: Errors, errors: Sequence[ErrorClass]) -> Json:
    meanings = (f"`{told.word(error(''))}`: {getdoc(error)}" for error in errors)
    answer: Json = {
        "description": "\n".join(dict.fromkeys(meanings)),
        "content": {JSON: {"schema": ref(told.name)}},
    }
    if any(error is QueueFull for error in errors):
        answer["headers"] = {
            "Retry-After": {"description": "seconds", "schema": {"type": "integer"}}
        }
    return answer
