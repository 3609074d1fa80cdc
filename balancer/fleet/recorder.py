"""Measurements of requests and their ends, and the `Recorder` that gets them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ...shared.errors import RequestError
from ...shared.inference import PriorityClass, RequestId, Timings, Usage
from .caller import ANONYMOUS, Caller


class Origin(NamedTuple):
    """The names of the agent and the model that tokens come from.

    The model's name includes the adapter.
    """

    agent: str = ""
    model: str = ""


NOWHERE = Origin()

MoveReason = Literal[
    "lost", "silent", "unanswered", "drained", "given_back", "gave_way", "restarted"
]
"""The reason why a request leaves an agent for another.

The agent disconnected, fell silent, left it `unanswered` for too long, was drained with a
deadline, or stopped by itself and gave its requests back. Or a `batch` request gave up its slot to
a waiting request. Or the balancer was `restarted`, and agents dropped the requests of the lost
balancer.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of one request.

    `code` is a finish reason (`stop`, `length`, `tool_calls`, `cancelled`), an error's code, or
    `client_gone`; an answered query has `answered`. `agent` is the name of the last agent. `model`
    is the model that the agent serves, with an adapter as `base:adapter`, or else the requested
    name. If the agent did not report at the end, `usage` has the prompt tokens, if known, and the
    delivered completion tokens. For a query, `kind` is its kind, and `num_inputs` its number of
    texts or documents. `is_suspect`: several agents were lost while they ran the request, so it
    may be the cause. `priority_class` is the class in which it waited; queries always have
    `default`.
    """

    code: str
    request_id: RequestId
    agent: str | None
    usage: Usage
    timings: Timings
    error: RequestError | None = None
    kind: Literal["generate", "text", "embed", "rank"] = "generate"
    num_inputs: int = 1
    caller: Caller = ANONYMOUS
    model: str | None = None
    is_suspect: bool = False
    priority_class: PriorityClass = "default"


class Recorder(Protocol):
    """Takes measurements on the event loop when they occur. Must be fast and must not raise."""

    def first_token(self, seconds: float, origin: Origin) -> None:
        """Record a request's first token, `seconds` after the request was accepted."""

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        """Record the seconds between pieces of answers; called once for each step."""

    def tokens(self, count: int, origin: Origin) -> None:
        """Record `count` delivered tokens; called once for each step."""

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        """Record that a request left an agent for another."""

    def ended(self, ending: Ending) -> None:
        """Record the end of a request; called once for each accepted and each refused request."""
