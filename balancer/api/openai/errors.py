"""The error hierarchy in OpenAI's format."""

from typing_extensions import TypedDict

from ....shared.errors import RequestError, status_of


class ErrorFields(TypedDict):
    """The fields of an error. `param` names the wrong field of the request."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(TypedDict):
    """The body of an error response."""

    error: ErrorFields


_CODES = {
    # Clients check these two codes to shorten a conversation or to slow down.
    "prompt_too_long": "context_length_exceeded",
    "rate_limited": "rate_limit_exceeded",
}

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


def openai_error(error: RequestError) -> OpenAIError:
    """Return the body of an error response."""
    return {"error": error_fields(error)}


def error_fields(error: RequestError) -> ErrorFields:
    """Return the fields of the `error` object."""
    return {
        "message": error.message,
        "type": _type(status_of(error)),
        "param": error.field,
        "code": _CODES.get(error.code, error.code),
    }


def _type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
