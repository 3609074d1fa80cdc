"""The errors of requests: one class tree, a stable code for each class.

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

The message says what is wrong and what is valid. It goes to the client unchanged, so it never
contains a secret. A fault in Arriero is an ordinary exception and never crosses a socket: the
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
"""Maximum characters of a message; chat templates can raise errors with long messages."""
MAX_FIELD = 300
MAX_RETRY_AFTER = 86_400.0
"""Maximum seconds of `Retry-After`."""


class Source(StrEnum):
    """The party that has to act before the request can succeed."""

    CLIENT = "client"
    BALANCER = "balancer"
    AGENT = "agent"


class RequestError(Exception):
    """Base class of all errors of requests. `field` is the wrong field of the request, if any.

    `kind` is the reason why a caller was refused access; it is counted and never sent.
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

    def forget_frames(self) -> None:
        """Release the frames that raised the error, once it is answered.

        An error and a frame that has it refer to each other. What the frames hold, such as a body
        of megabytes, would stay until the garbage is collected.
        """
        error: BaseException | None = self
        while error is not None and error.__traceback__ is not None:
            error.__traceback__ = None  # an error can be its own cause
            error = error.__cause__ or error.__context__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestError) and to_wire(self) == to_wire(other)

    def __hash__(self) -> int:
        return hash((self.code, self.message, self.field))


class InternalError(RequestError):
    """A fault in Arriero; its log has the details."""


class ClientError(RequestError):
    """The request cannot succeed unchanged: a retry does not help."""

    code = "invalid_request"
    status = 400
    source = Source.CLIENT
    retryable = False


class InvalidRequest(ClientError):
    """A field is missing, unknown or out of range."""


class PromptTooLong(ClientError):
    """The prompt does not fit into the context of a slot."""

    code = "prompt_too_long"

    @classmethod
    def of(
        cls, num_tokens: int, most: int, *, is_at_least: bool = False, field: str | None = None
    ) -> "PromptTooLong":
        """Return the error for a prompt of `num_tokens` tokens if only `most` fit.

        With `is_at_least`, the prompt has at least this number. Clients that shorten conversations
        search the message. Some read the counts of "prompt is too long: 9 tokens > 8", others look
        for "This model's maximum context length is".
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
    """The resource has changed, or its state does not allow the change: read it again first."""

    code = "conflict"
    status = 409


class NotFound(ClientError):
    """The path, agent or request does not exist."""

    code = "not_found"
    status = 404


class ModelNotFound(ClientError):
    """No agent serves the model."""

    code = "model_not_found"
    status = 404


class ThreadNotFound(ClientError):
    """The thread of `/v1/messages` is not stored: send the whole conversation."""

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
    """The request was cancelled before it ran."""

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
        """Make the error. `position` (from 1) is the place in the queue that the request would
        have had.
        """
        super().__init__(message, field=field, retry_after=retry_after)
        self.position = position


class Overloaded(RequestError):
    """Too many connections are open, or too many bytes of bodies are being read."""

    code = "overloaded"
    status = 503


class StoreUnavailable(RequestError):
    """The store (`--state`, `--files`) could not be written or read; nothing has changed."""

    code = "store_unavailable"
    status = 503


class ShuttingDown(RequestError):
    """The daemon drains before it stops."""

    code = "shutting_down"
    status = 503


class QueueTimeout(RequestError):
    """No slot became free in time."""

    code = "queue_timeout"
    status = 504


class DeadlineExceeded(RequestError):
    """The request's `deadline_ms` passed before its answer ended."""

    code = "deadline_exceeded"
    status = 504


class RequestTimeout(RequestError):
    """The request as a whole took too long."""

    code = "request_timeout"
    status = 504


class AgentError(RequestError):
    """The agent failed to answer the request."""

    code = "engine_failed"
    source = Source.AGENT


class EngineFailed(AgentError):
    """A step of the engine failed; the sequences of that step are lost."""


class ModelFailed(AgentError):
    """No agent can serve the model: loading failed, or the upstream server is unreachable."""

    code = "model_failed"
    status = 503


class AgentLost(AgentError):
    """The agent disconnected or fell silent while it was answering."""

    code = "agent_lost"
    status = 502


class FirstTokenTimeout(AgentError):
    """The request got a slot, but neither a token nor an end of its prompt came in time."""

    code = "first_token_timeout"
    status = 504


class TokenTimeout(AgentError):
    """The next token of a running answer did not come in time."""

    code = "token_timeout"
    status = 504


@dataclass(frozen=True, slots=True, kw_only=True)
class WireError:
    """An error as it crosses a socket."""

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
    """Return the HTTP status of `error`. Only Anthropic's API replaces a 503 by another status."""
    return error.status


def to_wire(error: RequestError) -> WireError:
    """Return `error` as it crosses a socket, with its texts and numbers within their bounds."""
    pause = error.retry_after
    return WireError(
        code=error.code,
        message=shortened(error.message, MAX_MESSAGE),
        retryable=error.retryable,
        field=None if error.field is None else shortened(error.field, MAX_FIELD),
        retry_after=None if pause is None else min(max(0.0, pause), MAX_RETRY_AFTER),
    )


def shortened(text: str, most: int) -> str:
    """Return `text` cut to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def from_wire(wire: WireError) -> RequestError:
    """Return the error with the code of `wire`; an unknown code gives an `InternalError`."""
    cls = BY_CODE.get(wire.code, InternalError)
    return cls(wire.message, field=wire.field, retry_after=wire.retry_after)


SAID_BY_AGENTS = frozenset(
    cls.code
    for cls in (
        *(InvalidRequest, PromptTooLong, ModelNotFound, RequestTooLarge, NotSupported, Cancelled),
        *(InternalError, EngineFailed, AgentLost, ShuttingDown),
    )
)
"""Error codes that an agent may send. An agent knows nothing of keys, limits or queues."""


def from_agent(wire: WireError) -> RequestError:
    """Return the error that an agent sent. A code that agents may not send gives `EngineFailed`."""
    if wire.code in SAID_BY_AGENTS:
        return from_wire(wire)
    return EngineFailed(wire.message, field=wire.field, retry_after=wire.retry_after)


class FieldProblem(TypedDict):
    """One fault in a body; `field` is null if the fault concerns the whole body."""

    field: str | None
    message: str


class PublicError(TypedDict):
    """An error. `code` is stable, `message` is for people, `field` names the wrong field.

    `retry_after` is in seconds. `problems` lists all faults of a body that is checked as a whole.
    """

    code: str
    message: str
    retryable: bool
    field: NotRequired[str]
    retry_after: NotRequired[float]
    problems: NotRequired[list[FieldProblem]]


def public_body(error: RequestError) -> PublicError:
    """Return the body for clients of the native API, under the key `error`."""
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
