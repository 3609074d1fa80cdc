"""Failures of an upstream server, as errors of requests.

If the server refuses a request for reasons of its own, the request is given back. Another agent
may serve the request, or this agent later. If the request itself is wrong, its client gets the
server's message, with the key removed.
"""

import json
from collections.abc import Mapping
from typing import Any

from ....shared.errors import (
    AgentLost,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    NotSupported,
    PromptTooLong,
    RequestError,
    RequestTooLarge,
    ShuttingDown,
)

MAX_MESSAGE = 500
"""Maximum characters of a server's message that are passed on."""

_TOO_LONG = (
    *("context length", "context_length", "exceed_context_size", "too long"),  # vLLM, OpenAI
    "maximum allowed length",  # SGLang
    "available context size",  # llama-server
    "`inputs` must have less than",  # TGI
)
_CLIENTS: Mapping[int, type[RequestError]] = {
    400: InvalidRequest,
    404: ModelNotFound,
    405: NotSupported,
    413: RequestTooLarge,
    415: NotSupported,
    422: InvalidRequest,
    501: NotSupported,
}
_LATER = (401, 403, 408, 409, 425, 429, 502, 503, 504, 529)
"""Statuses that concern the server and not the request."""


_BUSY = (429, 503, 529)


class UpstreamFault(Exception):
    """The server violates the protocol, or went away; the message says how."""


class UpstreamLost(Exception):
    """The server cannot be reached, or does not answer; the message continues a sentence about it.

    `is_certain`: no server listens at the address. Otherwise the server may only be slow.
    """

    def __init__(self, message: str, *, is_certain: bool) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class UpstreamRefusal(Exception):
    """The server answered with an error. `message` is the server's message, shortened.

    `retry_after`: the server asks for this many seconds without requests.
    """

    def __init__(self, status: int, body: bytes, retry_after: float | None = None) -> None:
        self.status = status
        self.retry_after = retry_after
        self.message = words_of(body)
        super().__init__(f"{status}: {self.message}" if self.message else f"status {status}")

    @property
    def asks_for_pause(self) -> bool:
        """Return whether the server is overloaded and says for how long."""
        return self.retry_after is not None and self.status in _BUSY

    @property
    def is_servers(self) -> bool:
        """Return whether the error concerns the server, so that another server may serve the
        request.
        """
        return self.status in _LATER or 300 <= self.status < 400


def words_of(body: bytes) -> str:
    """Return the message in an error's body of any shape, in one line."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = body.decode(errors="replace")
    return " ".join(_message(document).split())[:MAX_MESSAGE]


def _message(document: Any) -> str:
    if isinstance(document, dict):
        found = next((document[key] for key in _WORDS if document.get(key)), "")
        return _message(found)
    if isinstance(document, list):
        return _message(document[0]) if document else ""
    return document if isinstance(document, str) else ""


_WORDS = ("error", "message", "detail", "msg")


def message_of(refusal: UpstreamRefusal) -> str:
    """Return the server's message for people.

    If the key was refused, the message is Arriero's own, since a server may reveal the key.
    """
    if refusal.status in (401, 403):
        return f"it refuses the key of --upstream-key-file (status {refusal.status})"
    if 300 <= refusal.status < 400:
        return f"it redirects (status {refusal.status}), which is not followed"
    return refusal.message or f"status {refusal.status}"


def error_of(refusal: UpstreamRefusal, host: str) -> RequestError:
    """Return the error of a request that the server at `host` refused."""
    message = f"the upstream server at {host}: {message_of(refusal)}"
    if refusal.is_servers:
        return ShuttingDown(message)
    if any(words in refusal.message.lower() for words in _TOO_LONG):
        return PromptTooLong(message)
    return _CLIENTS.get(refusal.status, EngineFailed)(message)


def loss_of(reason: str, host: str, *, has_streamed: bool) -> RequestError:
    """Return the error for a request whose server at `host` was lost.

    If the answer has not begun, another agent may serve the request. `reason` continues a sentence
    about the server.
    """
    message = f"the upstream server at {host} was lost: {reason}"
    return AgentLost(message) if has_streamed else ShuttingDown(message)


def unwilling(reason: str, host: str) -> AgentLost:
    """Return the error for a server at `host` that does not continue another's answer."""
    return AgentLost(f"the upstream server at {host} did not continue the answer: {reason}")
