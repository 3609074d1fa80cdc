"""The errors of requests: one tree, each with a stable code.

| code | status | source | a retry can help |
| --- | --- | --- | --- |
| `invalid_request` | 400 | client | no |
| `prompt_too_long` | 400 | client | no |
| `unauthorized` | 401 | client | no |
| `forbidden` | 403 | client | no |
| `forbidden_host` | 403 | client | no |
| `not_found` | 404 | client | no |
| `model_not_found` | 404 | client | no |
| `thread_not_found` | 404 | client | no |
| `method_not_allowed` | 405 | client | no |
| `conflict` | 409 | client | no |
| `request_too_large` | 413 | client | no |
| `unsupported_encoding` | 415 | client | no |
| `rate_limited` | 429 | balancer | yes |
| `cancelled` | 499 | client | no |
| `internal_error` | 500 | balancer | yes |
| `engine_failed` | 500 | agent | yes |
| `not_supported` | 501 | client | no |
| `agent_lost` | 502 | agent | yes |
| `model_failed` | 503 | agent | yes |
| `queue_full` | 503 | balancer | yes |
| `overloaded` | 503 | balancer | yes |
| `store_unavailable` | 503 | balancer | yes |
| `shutting_down` | 503 | balancer | yes |
| `queue_timeout` | 504 | balancer | yes |
| `deadline_exceeded` | 504 | balancer | yes |
| `first_token_timeout` | 504 | agent | yes |
| `token_timeout` | 504 | agent | yes |
| `request_timeout` | 504 | balancer | yes |

The message says what is wrong and what would be right; it goes to the client as it stands, so it
never carries a secret. Our own mistakes are ordinary exceptions and never cross a socket: the
client gets `internal_error`, and the log gets the traceback.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from .strict import STRICT

MAX_CODE = 64
MAX_MESSAGE = 8000
"""Characters of a message; templates may raise errors with long ones."""
MAX_FIELD = 300
MAX_RETRY_AFTER = 86_400.0
"""Seconds."""


class Source(StrEnum):
    """Who has to act for the error to go away."""

    CLIENT = "client"
    BALANCER = "balancer"
    AGENT = "agent"


class RequestError(Exception):
    """Root of the tree. `field` names the field of the request that is wrong, if one is.

    `kind` says why somebody was refused at a door; it is counted, and never sent.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    source: ClassVar[Source] = Source.BALANCER
    retryable: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        retry_after: float | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.field = field
        self.retry_after = retry_after

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestError) and to_wire(self) == to_wire(other)

    def __hash__(self) -> int:
        return hash((self.code, self.message, self.field))


class InternalError(RequestError):
    """A fault in Arriero; its log has the details."""


class ClientError(RequestError):
    """The request cannot succeed as it is: a retry does not help."""

    code = "invalid_request"
    status = 400
    source = Source.CLIENT
    retryable = False


class InvalidRequest(ClientError):
    """A field is missing, unknown or out of range."""


class PromptTooLong(ClientError):
    """The prompt does not fit below the slot's context ceiling."""

    code = "prompt_too_long"

    @classmethod
    def of(
        cls, num_tokens: int, most: int, *, is_at_least: bool = False, field: str | None = None
    ) -> "PromptTooLong":
        """The error for `num_tokens` where `most` fit; of a lower bound, `is_at_least`.

        Clients that shorten conversations look for these words: the counts for "prompt is too
        long: 9 tokens > 8", others for "This model's maximum context length is".
        """
        name = f"`{field}`: " if field else ""
        count = f"at least {num_tokens}" if is_at_least else f"{num_tokens}"
        return cls(
            f"{name}prompt is too long: {count} tokens > {most} maximum. "
            f"This model's maximum context length is {most} tokens.",
            field=field,
        )


class Unauthorized(ClientError):
    """No access key, or one that is unknown, revoked or expired."""

    code = "unauthorized"
    status = 401


class Forbidden(ClientError):
    """The access key's role may not do this, or a web page of another origin tried to."""

    code = "forbidden"
    status = 403


class ForbiddenHost(ClientError):
    """`Host` is not an address, `localhost`, or a name of the balancer (`--allowed-host`)."""

    code = "forbidden_host"
    status = 403


class Conflict(ClientError):
    """What was to be changed has changed in the meantime: read it again first."""

    code = "conflict"
    status = 409


class NotFound(ClientError):
    """No such path, agent or request."""

    code = "not_found"
    status = 404


class ModelNotFound(ClientError):
    """No agent serves the model."""

    code = "model_not_found"
    status = 404


class ThreadNotFound(ClientError):
    """No such thread of `/v1/messages` is stored: the whole conversation has to be sent."""

    code = "thread_not_found"
    status = 404


class MethodNotAllowed(ClientError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"
    status = 405


class RequestTooLarge(ClientError):
    """The body is too large; it was not parsed."""

    code = "request_too_large"
    status = 413


class UnsupportedEncoding(ClientError):
    """The body is compressed; it was not read."""

    code = "unsupported_encoding"
    status = 415


class Cancelled(ClientError):
    """Cancelled before it ran."""

    code = "cancelled"
    status = 499


class NotSupported(ClientError):
    """The request is valid, but not supported here."""

    code = "not_supported"
    status = 501


class RateLimited(RequestError):
    """The caller is over its rate limit."""

    code = "rate_limited"
    status = 429


class QueueFull(RequestError):
    """The queue is full."""

    code = "queue_full"
    status = 503

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        retry_after: float | None = None,
        position: int | None = None,
    ) -> None:
        """`position`, from 1, is the place that the request would have had."""
        super().__init__(message, field=field, retry_after=retry_after)
        self.position = position


class Overloaded(RequestError):
    """Too many connections are open, or too many bytes of bodies are being read."""

    code = "overloaded"
    status = 503


class StoreUnavailable(RequestError):
    """What is kept (`--state`, `--files`) could not be saved or read; nothing has changed."""

    code = "store_unavailable"
    status = 503


class ShuttingDown(RequestError):
    """The daemon is draining."""

    code = "shutting_down"
    status = 503


class QueueTimeout(RequestError):
    """No slot became free in time."""

    code = "queue_timeout"
    status = 504


class DeadlineExceeded(RequestError):
    """The request's own deadline (`deadline_ms`) came before its end."""

    code = "deadline_exceeded"
    status = 504


class RequestTimeout(RequestError):
    """The request as a whole took too long."""

    code = "request_timeout"
    status = 504


class AgentError(RequestError):
    """Something went wrong on the agent."""

    code = "engine_failed"
    source = Source.AGENT


class EngineFailed(AgentError):
    """A step of the engine failed; the sequences that were in it are lost."""


class ModelFailed(AgentError):
    """No agent can serve the model: it failed to load, or the server behind its agents is away."""

    code = "model_failed"
    status = 503


class AgentLost(AgentError):
    """The agent disconnected or fell silent while it was answering."""

    code = "agent_lost"
    status = 502


class FirstTokenTimeout(AgentError):
    """The request got a slot, but no token came in time, and no report that its prompt is read."""

    code = "first_token_timeout"
    status = 504


class TokenTimeout(AgentError):
    """A running stream got no further token in time."""

    code = "token_timeout"
    status = 504


@dataclass(frozen=True, slots=True, kw_only=True)
class WireError:
    """An error as it crosses a socket: code, message, retryable and, where known, more."""

    __pydantic_config__ = STRICT

    code: Annotated[str, Field(max_length=MAX_CODE)]
    message: Annotated[str, Field(max_length=MAX_MESSAGE)]
    retryable: bool
    field: Annotated[str, Field(max_length=MAX_FIELD)] | None = None
    retry_after: Annotated[float, Field(ge=0, le=MAX_RETRY_AFTER)] | None = None


def _leaves(cls: type[RequestError]) -> list[type[RequestError]]:
    children = cls.__subclasses__()
    return [leaf for child in children for leaf in _leaves(child)] if children else [cls]


BY_CODE: dict[str, type[RequestError]] = {cls.code: cls for cls in _leaves(RequestError)}


def status_of(error: RequestError) -> int:
    """The HTTP status of `error`. Only Anthropic's API uses another, for a 503."""
    return error.status


def to_wire(error: RequestError) -> WireError:
    """`error` as it crosses a socket."""
    pause = error.retry_after
    return WireError(
        code=error.code,
        message=shortened(error.message, MAX_MESSAGE),
        retryable=error.retryable,
        field=None if error.field is None else shortened(error.field, MAX_FIELD),
        retry_after=None if pause is None else min(max(0.0, pause), MAX_RETRY_AFTER),
    )


def shortened(text: str, most: int) -> str:
    """`text` with at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def from_wire(wire: WireError) -> RequestError:
    """The error that `wire` stands for; an unknown code is an `InternalError`."""
    cls = BY_CODE.get(wire.code, InternalError)
    return cls(wire.message, field=wire.field, retry_after=wire.retry_after)


SAID_BY_AGENTS = frozenset(
    cls.code
    for cls in (
        *(InvalidRequest, PromptTooLong, ModelNotFound, RequestTooLarge, NotSupported, Cancelled),
        *(InternalError, EngineFailed, AgentLost, ShuttingDown),
    )
)
"""Codes that an agent may end a request with. It knows nothing of keys, limits or queues."""


def from_agent(wire: WireError) -> RequestError:
    """The error with which an agent ended a request; any but its own is a failure of its engine."""
    if wire.code in SAID_BY_AGENTS:
        return from_wire(wire)
    return EngineFailed(wire.message, field=wire.field, retry_after=wire.retry_after)


class FieldProblem(TypedDict):
    """One thing that is wrong with a body, and where; `field` is null for the body as a whole."""

    field: str | None
    message: str


class PublicError(TypedDict):
    """An error. `code` is stable, `message` is for people, `field` names the wrong field.

    `retry_after` is in seconds. `problems` are all that is wrong, where a body is looked at as a
    whole.
    """

    code: str
    message: str
    retryable: bool
    field: NotRequired[str]
    retry_after: NotRequired[float]
    problems: NotRequired[list[FieldProblem]]


def public_body(error: RequestError) -> PublicError:
    """What a client of the native API sees under `error`."""
    body: PublicError = {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
    }
    if error.field is not None:
        body["field"] = error.field
    if error.retry_after is not None:
        body["retry_after"] = round(error.retry_after, 3)
    return body
