"""The measurements of requests, and the interface `Recorder` that receives them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ...shared.errors import RequestError
from ...shared.inference import PriorityClass, RequestId, Timings, Usage
from .caller import ANONYMOUS, Caller


class Origin(NamedTuple):
    """The names of the agent that generated tokens, and of its model.

    The model's name includes the adapter.
    """

    agent: str = ""
    model: str = ""


NOWHERE = Origin()

MoveReason = Literal[
    "lost", "silent", "unanswered", "drained", "given_back", "gave_way", "restarted"
]
"""The reason why a request moves from one agent to another.

- `lost`: the agent disconnected.
- `silent`: the agent sent nothing for too long.
- `unanswered`: the agent did not answer the request for too long.
- `drained`: the agent was drained with a deadline.
- `given_back`: the agent stopped and gave its requests back.
- `gave_way`: the `batch` request gave up its slot to a waiting request.
- `restarted`: the balancer was restarted, and agents dropped their requests.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of one request.

    - `code`: a finish reason (`stop`, `length`, `tool_calls`, `cancelled`), an error code,
      `client_gone`, or `answered` for a query.
    - `agent`: the name of the last agent.
    - `model`: the agent's model (with an adapter: `base:adapter`), or else the requested model.
    - `usage`: the agent's token counts, or else the delivered tokens and known prompt tokens.
    - `kind`, `num_inputs`: the kind of a query, and its number of texts or documents.
    - `is_suspect`: several agents were lost while they ran the request, so it may be the cause.
    - `priority_class`: the class in which the request waited; always `default` for queries.
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
    """Receives measurements on the event loop as they happen. Must be fast and must not raise."""

    def first_token(self, seconds: float, origin: Origin) -> None:
        """Record the first token of a request, `seconds` after the request was accepted."""

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        """Record the seconds between texts of answers. Called once for each step of an agent."""

    def tokens(self, count: int, origin: Origin) -> None:
        """Record `count` delivered tokens. Called once for each step of an agent."""

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        """Record that a request left an agent for another."""

    def ended(self, ending: Ending) -> None:
        """Record the end of a request, once for each accepted and each refused request."""
