"""An API as an OpenAPI 3.1 document: its operations, their parameters, bodies and answers.

An operation lists the error classes that it can end with; their statuses and descriptions follow
from the error hierarchy.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any

from ....shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    FirstTokenTimeout,
    Forbidden,
    ForbiddenHost,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    NotSupported,
    Overloaded,
    PromptTooLong,
    QueueFull,
    QueueTimeout,
    RequestError,
    RequestTimeout,
    RequestTooLarge,
    ShuttingDown,
    TokenTimeout,
    Unauthorized,
    status_of,
)
from .answers import Described, Form, described
from .bodies import Body
from .schemas import STRING, Schema

JSON = "application/json"

ErrorClass = type[RequestError]
Json = dict[str, Any]

ALWAYS: tuple[ErrorClass, ...] = (Unauthorized, Forbidden, ForbiddenHost, InternalError)
SECURITY_SCHEMES: Json = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "an access key, `ark_…`"},
    "api_key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "the same, as Anthropic's clients send it",
    },
}
"""Either, or none while nobody has a key."""

OF_BODIES: tuple[ErrorClass, ...] = (InvalidRequest, RequestTooLarge, Overloaded)
OF_MODELS: tuple[ErrorClass, ...] = (
    *(PromptTooLong, ModelNotFound, Cancelled, EngineFailed, NotSupported, AgentLost, QueueFull),
    *(ShuttingDown, QueueTimeout, FirstTokenTimeout, TokenTimeout, RequestTimeout),
)
"""The errors of a request that an agent has to answer."""


@dataclass(frozen=True, slots=True)
class Errors:
    """How an API tells errors: their form, and what it calls them.

    `status` is for an API that has statuses of its own.
    """

    form: Form
    word: Callable[[RequestError], object]
    status: Callable[[RequestError], int] = status_of


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no error: by media type, the forms that the document's words stand for."""

    description: str
    content: Mapping[str, Mapping[str, Form]] = field(default_factory=dict)


def json_answer(description: str, form: Form) -> Answer:
    """An answer in one piece."""
    return Answer(description, {JSON: {"schema": form}})


def streamed(description: str, whole: Form, *kinds: str, item: Form | None = None) -> Answer:
    """An answer that is a stream of one of `kinds`, of `item`s, or `whole` in one piece.

    OpenAPI 3.1 has no keyword for the items of a stream.
    """
    events = {} if item is None else {"x-item-schema": item}
    return Answer(description, {**dict.fromkeys(kinds, events), JSON: {"schema": whole}})


def events_or(whole: Form, ends: str, *, item: Form | None = None) -> Answer:
    """`whole`, or with `stream` its parts as server-sent events, each an `item`."""
    return streamed(
        f"With `stream`, server-sent events, the last of which is {ends}; otherwise one object.",
        whole,
        "text/event-stream",
        item=item,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. `name` is unique. `is_keyless`: it needs no key, ever."""

    method: str
    path: str
    name: str
    summary: str
    answers: Mapping[int, Answer]
    errors: tuple[ErrorClass, ...] = ()
    told: Errors
    body: Body | None = None
    parameters: tuple[Json, ...] = ()
    is_keyless: bool = False


def parameter(name: str, place: str, schema: Schema = STRING, *, required: bool = False) -> Json:
    """A parameter; `place` is `path`, `query` or `header`."""
    return {"name": name, "in": place, "required": required, "schema": schema}


def document(
    *,
    title: str,
    version: str,
    operations: Sequence[Operation],
    components: Mapping[str, Schema] | None = None,
) -> Json:
    """The whole document, as JSON values. `components` are those that written schemas refer to."""
    forms = described(form for operation in operations for form in _forms(operation))
    schemas: dict[str, Schema] = {**(components or {}), **forms.components}
    paths: dict[str, Json] = defaultdict(dict)
    for operation in operations:
        paths[operation.path][operation.method.lower()] = _operation(operation, forms)
        if operation.body is not None:
            schemas |= operation.body.schemas()
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": dict(paths),
        "security": [*({scheme: []} for scheme in SECURITY_SCHEMES), {}],
        "components": {"schemas": schemas, "securitySchemes": SECURITY_SCHEMES},
    }


def _forms(operation: Operation) -> Iterator[Form]:
    yield operation.told.form
    for answer in operation.answers.values():
        for content in answer.content.values():
            yield from content.values()


def _operation(operation: Operation, forms: Described) -> Json:
    described: Json = {"operationId": operation.name, "summary": operation.summary}
    if operation.is_keyless:
        described["security"] = []
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body is not None:
        described["requestBody"] = operation.body.described()
    responses = {
        str(status): _answer(answer, forms) for status, answer in operation.answers.items()
    }
    return described | {"responses": responses | _errors(operation, forms)}


def _answer(answer: Answer, forms: Described) -> Json:
    described: Json = {"description": answer.description}
    if answer.content:
        described["content"] = {
            kind: {word: forms.schema(form) for word, form in content.items()}
            for kind, content in answer.content.items()
        }
    return described


def _errors(operation: Operation, forms: Described) -> Json:
    """By status. One that is also an answer's, as of a probe, is left to that."""
    bodies = OF_BODIES if operation.body is not None else ()
    by_status: dict[int, list[ErrorClass]] = defaultdict(list)
    for error in dict.fromkeys((*ALWAYS, *bodies, *operation.errors)):
        by_status[operation.told.status(error(""))].append(error)
    return {
        str(status): _error_answer(operation.told, errors, forms)
        for status, errors in sorted(by_status.items())
        if status not in operation.answers
    }


def _error_answer(told: Errors, errors: Sequence[ErrorClass], forms: Described) -> Json:
    meanings = (f"`{told.word(error(''))}`: {getdoc(error)}" for error in errors)
    answer: Json = {
        "description": "\n".join(dict.fromkeys(meanings)),
        "content": {JSON: {"schema": forms.schema(told.form)}},
    }
    if any(error is QueueFull for error in errors):
        answer["headers"] = {
            "Retry-After": {"description": "seconds", "schema": {"type": "integer"}}
        }
    return answer
