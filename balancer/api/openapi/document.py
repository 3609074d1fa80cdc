"""Arriero's own APIs as OpenAPI 3.1 documents: operations, parameters, bodies and answers.

An operation lists the error classes with which it can end; their statuses and descriptions follow
from the error hierarchy.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any

from typing_extensions import TypedDict

from ....shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    FirstTokenTimeout,
    Forbidden,
    ForbiddenHost,
    InternalError,
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    NotSupported,
    Overloaded,
    PromptTooLong,
    PublicError,
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
from .schemas import STRING, Body, Described, Form, Schema, described

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
"""One of the two keys; no key is needed while the balancer has no keys."""

OF_BODIES: tuple[ErrorClass, ...] = (InvalidRequest, RequestTooLarge, Overloaded)
OF_MODELS: tuple[ErrorClass, ...] = (
    *(PromptTooLong, ModelNotFound, Cancelled, EngineFailed, NotSupported, AgentLost, QueueFull),
    *(ModelFailed, ShuttingDown, QueueTimeout, FirstTokenTimeout, TokenTimeout, RequestTimeout),
)
"""The errors of a request that an agent has to answer."""


class ErrorAnswer(TypedDict):
    """The body of an error.

    If an accepted request ends with the error, the header `X-Request-Id` has the request's id.
    """

    error: PublicError


@dataclass(frozen=True, slots=True)
class AnswerDoc:
    """A successful answer: its types by media type."""

    description: str
    content: Mapping[str, Mapping[str, Form]] = field(default_factory=dict)


def json_answer(description: str, form: Form) -> AnswerDoc:
    """Return the description of an answer in one piece."""
    return AnswerDoc(description, {JSON: {"schema": form}})


def streamed(description: str, whole: Form, *kinds: str, item: Form | None = None) -> AnswerDoc:
    """Return the description of an answer that is `whole`, or a stream of `item`s.

    OpenAPI 3.1 has no keyword for the items of a stream.
    """
    events = {} if item is None else {"x-item-schema": item}
    return AnswerDoc(description, {**dict.fromkeys(kinds, events), JSON: {"schema": whole}})


@dataclass(frozen=True, slots=True)
class Doc:
    """The description of one method of one path. Its `name` is unique.

    The parameters in the path are derived from the path.
    """

    name: str
    summary: str
    answers: Mapping[int, AnswerDoc]
    errors: tuple[ErrorClass, ...] = field(default=(), kw_only=True)
    body: Body | None = field(default=None, kw_only=True)
    parameters: tuple[Json, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """A described method of a path. `is_keyless`: the method never needs a key."""

    method: str
    path: str
    doc: Doc
    is_keyless: bool = False

    @property
    def parameters(self) -> list[Json]:
        """Return the parameters of the path, then all other parameters."""
        names = re.findall(r"\{(\w+)\}", self.path)
        in_path = [parameter(name, "path", required=True) for name in names]
        return [*in_path, *self.doc.parameters]


def parameter(name: str, place: str, schema: Schema = STRING, *, required: bool = False) -> Json:
    """Return a parameter; `place` is `path`, `query` or `header`."""
    return {"name": name, "in": place, "required": required, "schema": schema}


def document(
    *,
    title: str,
    version: str,
    operations: Sequence[Operation],
) -> Json:
    """Return the whole document, as JSON values."""
    forms = described(form for operation in operations for form in _forms(operation.doc))
    schemas: dict[str, Schema] = dict(forms.components)
    paths: dict[str, Json] = defaultdict(dict)
    for operation in operations:
        paths[operation.path][operation.method.lower()] = _operation(operation, forms)
        if operation.doc.body is not None:
            schemas |= operation.doc.body.schemas()
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": dict(paths),
        "security": [*({scheme: []} for scheme in SECURITY_SCHEMES), {}],
        "components": {"schemas": schemas, "securitySchemes": SECURITY_SCHEMES},
    }


def _forms(doc: Doc) -> Iterator[Form]:
    yield ErrorAnswer
    for answer in doc.answers.values():
        for content in answer.content.values():
            yield from content.values()


def _operation(operation: Operation, forms: Described) -> Json:
    doc = operation.doc
    described: Json = {"operationId": doc.name, "summary": doc.summary}
    if operation.is_keyless:
        described["security"] = []
    if parameters := operation.parameters:
        described["parameters"] = parameters
    if doc.body is not None:
        described["requestBody"] = doc.body.described()
    responses = {str(status): _answer(answer, forms) for status, answer in doc.answers.items()}
    return described | {"responses": responses | _errors(doc, forms)}


def _answer(answer: AnswerDoc, forms: Described) -> Json:
    described: Json = {"description": answer.description}
    if answer.content:
        described["content"] = {
            kind: {word: forms.schema(form) for word, form in content.items()}
            for kind, content in answer.content.items()
        }
    return described


def _errors(doc: Doc, forms: Described) -> Json:
    """Return the errors by status, without statuses that a normal answer has, as with probes."""
    bodies = OF_BODIES if doc.body is not None else ()
    by_status: dict[int, list[ErrorClass]] = defaultdict(list)
    for error in dict.fromkeys((*ALWAYS, *bodies, *doc.errors)):
        by_status[status_of(error(""))].append(error)
    return {
        str(status): _error_answer(errors, forms)
        for status, errors in sorted(by_status.items())
        if status not in doc.answers
    }


def _error_answer(errors: Sequence[ErrorClass], forms: Described) -> Json:
    meanings = (f"`{error.code}`: {getdoc(error)}" for error in errors)
    answer: Json = {
        "description": "\n".join(dict.fromkeys(meanings)),
        "content": {JSON: {"schema": forms.schema(ErrorAnswer)}},
    }
    if any(error is QueueFull for error in errors):
        answer["headers"] = {
            "Retry-After": {"description": "seconds", "schema": {"type": "integer"}}
        }
    return answer
