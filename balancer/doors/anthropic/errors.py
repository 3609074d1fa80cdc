"""The tree of errors in Anthropic's words."""

from ....shared.errors import RequestError, Source, status_of

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error(error: RequestError, request_id: str | None = None) -> dict[str, object]:
    """`{"type": "error", "error": {"type", "message"}, "request_id"}`."""
    return {
        "type": "error",
        "error": {"type": _type(error), "message": error.message},
        "request_id": request_id,
    }


def _type(error: RequestError) -> str:
    of_others = "invalid_request_error" if error.source is Source.CLIENT else "api_error"
    return _TYPES.get(status_of(error), of_others)
