"""Measurements of requests and their ends, and the `Recorder` that gets them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ...shared.errors import RequestError
from ...shared.inference import PriorityClass, RequestId, Timings, Usage
from .caller import ANONYMOUS, Caller


class Origin(NamedTuple):
    """The origin of tokens: the names of the agent and its model, with the adapter."""

    agent: str = ""
    model: str = ""


NOWHERE = Origin()

MoveReason = Literal[
    "lost", "silent", "unanswered", "drained", "given_back", "gave_way", "restarted"
]
"""Why a request leaves an agent for another: the agent disconnected, fell silent, left it
`unanswered` for too long, was drained with a deadline, or stopped by itself and gave back what it
had not finished. Or a `batch` request gave
up its slot to one that waited. Or the balancer itself was `restarted`, and agents drop what a
balancer that has gone asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of one request.

    `code` is a finish reason (`stop`, `length`, `tool_calls`, `cancelled`), an error's code, or
    `client_gone`; a query that was answered has `answered`. `agent` is the name of the one it ran
    on last, `model` what that agent serves, as `base:adapter` where one applies, or what the
    request named. Where the agent did not report at the end, `usage` has the prompt, once it was
    computed, and the completion tokens that were delivered. Of a query, `kind` tells which it was,
    and `num_inputs` how many texts or documents it had. `is_suspect`: agents were lost while they
    ran it, so often that it may be the cause. `priority_class` is that in which it waited; queries
    have none other than `default`.
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
    """Called on the event loop as things happen. Must be quick and must not raise."""

    def first_token(self, seconds: float, origin: Origin) -> None:
        """A request's first token came `seconds` after the request was accepted."""

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        """Later pieces came so many seconds after the ones before; once for each step."""

    def tokens(self, count: int, origin: Origin) -> None:
        """`count` tokens were delivered; once for each step."""

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        """A request left an agent for another."""

    def ended(self, ending: Ending) -> None:
        """A request ended; once for each that was accepted, and for each that was refused."""
