"""The errors of the client."""

from collections.abc import Mapping
from typing import Any


class ArrieroError(Exception):
    """Base class of the client's errors. The message is one line."""


class Unreachable(ArrieroError):
    """The connection failed or broke.

    If the request `was_sent`, the balancer may have processed it.
    """

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class Untrusted(ArrieroError):
    """TLS failed: the certificate is not trusted, or has another name. A retry does not help."""


class RequestFailed(ArrieroError):
    """The balancer, or an agent behind it, refused or failed the request.

    `code` is one of `docs/errors.md`; `status` is the HTTP status, or `None` for an error in a
    stream. If `is_retryable`, the same request may succeed later, after `retry_after` seconds if
    known. `request_id` is the request's id in the balancer's log.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        is_retryable: bool = False,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.status = status
        self.is_retryable = is_retryable
        self.retry_after = retry_after
        self.request_id = request_id


def failure(body: object, **more: Any) -> RequestFailed:
    """Return the error in `{"error": {"code", "message", "retryable"}}`, or in another body."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        status = more.get("status")
        return RequestFailed("unexpected_answer", f"unexpected answer with status {status}", **more)
    retryable = error.get("retryable") is True
    code, message = str(error.get("code")), str(error.get("message"))
    return RequestFailed(code, message, is_retryable=retryable, **more)
