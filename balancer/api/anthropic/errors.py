"""The error hierarchy in Anthropic's format."""

from http import HTTPStatus
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from ....shared.errors import RequestError, Source, ThreadNotFound, status_of


class ErrorCode(TypedDict):
    """A short code for the error, for programs."""

    error_code: Literal["thread_not_found"]


class ErrorDetail(TypedDict):
    """An error's type and message."""

    type: str
    message: str
    details: NotRequired[ErrorCode]


class AnthropicError(TypedDict):
    """The body of an error response."""

    type: Literal["error"]
    error: ErrorDetail
    request_id: str


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

OVERLOADED = 529
"""Anthropic's status in place of 503, for which its clients have an exception class."""


def anthropic_status(error: RequestError) -> int:
    """Return the HTTP status of `error`."""
    status = status_of(error)
    return OVERLOADED if status == HTTPStatus.SERVICE_UNAVAILABLE else status


def anthropic_error(error: RequestError, request_id: str) -> AnthropicError:
    """Return the body of an error response."""
    detail: ErrorDetail = {"type": anthropic_type(error), "message": error.message}
    if isinstance(error, ThreadNotFound):
        detail["details"] = {"error_code": "thread_not_found"}
    return {"type": "error", "error": detail, "request_id": request_id}


def anthropic_type(error: RequestError) -> str:
    """Return the `type` of the error."""
    of_others = "invalid_request_error" if error.source is Source.CLIENT else "api_error"
    return _TYPES.get(status_of(error), of_others)
