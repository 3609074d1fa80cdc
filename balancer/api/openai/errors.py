"""The tree of errors in OpenAI's words."""

from ....shared.errors import RequestError, status_of
from .answer_types import ErrorFields, OpenAIError

_CODES = {
    # Clients look for these two to shorten a conversation or to slow down.
    "prompt_too_long": "context_length_exceeded",
    "rate_limited": "rate_limit_exceeded",
}

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


def openai_error(error: RequestError) -> OpenAIError:
    """The body of an answer that is an error."""
    return {"error": error_fields(error)}


def error_fields(error: RequestError) -> ErrorFields:
    """What it says."""
    return {
        "message": error.message,
        "type": _type(status_of(error)),
        "param": error.field,
        "code": _CODES.get(error.code, error.code),
    }


def _type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
