"""The decisions of the fleet's core. The fleet runtime carries out each list in order."""

from dataclasses import dataclass
from typing import NewType

from ...shared.errors import RequestError
from ...shared.inference import Event, RequestId, Token
from ...shared.messages import FitRead, FromBalancer, LogRead
from ...shared.queries import Result
from .recorder import NOWHERE, Ending, MoveReason, Origin

LinkId = NewType("LinkId", int)
"""The number of an agent's connection. An agent that connects again keeps its `AgentId`."""


@dataclass(frozen=True, slots=True)
class Send:
    """Put `message` on the link's socket."""

    link: LinkId
    message: FromBalancer


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the link's socket after its messages are sent. The core has forgotten the link."""

    link: LinkId
    reason: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass `event` to the request's stream. No event follows a `Done` or `Failed`."""

    request: RequestId
    event: Event


@dataclass(frozen=True, slots=True)
class DeliverTokens:
    """Deliver the tokens of one step of an agent to their streams, and record the tokens.

    `num_tokens` counts generated tokens; the text of an event may have several tokens or none.
    `gaps` are the seconds since the previous token, except for each request's first text. The
    tokens of one text share the time since the previous text.
    """

    tokens: tuple[tuple[RequestId, Token], ...]
    num_tokens: int
    gaps: tuple[float, ...] = ()
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the new request."""

    request: RequestId
    error: RequestError


@dataclass(frozen=True, slots=True)
class Settle:
    """Answer the query with one result for each part, in order, or with an error."""

    query: RequestId
    outcome: tuple[Result, ...] | RequestError


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Record the time to first token: the seconds since the request was accepted."""

    seconds: float
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Moved:
    """Record and log that a request left the agent of `origin` for another agent."""

    request: RequestId
    reason: MoveReason
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Finish:
    """Record and log the end of a request."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class ShowLog:
    """Pass lines of an agent's log to their reader."""

    message: LogRead


@dataclass(frozen=True, slots=True)
class ShowFit:
    """Pass the options that an agent chose for a model to their reader."""

    message: FitRead


@dataclass(frozen=True, slots=True)
class ReadsLost:
    """End the reads of these ids, because the connection to their agent was lost."""

    ids: tuple[RequestId, ...]


@dataclass(frozen=True, slots=True)
class LogBad:
    """Log that a link was closed because of a bad message, with the traceback of `error`, if any.

    After an internal error, requests may have ended without a message to their clients; see
    `Fleet.forgotten`.
    """

    agent: str
    reason: str
    error: Exception | None = None
    is_ours: bool = False


Decision = (
    Send
    | Disconnect
    | Deliver
    | DeliverTokens
    | Refuse
    | Settle
    | FirstToken
    | Moved
    | Finish
    | ShowLog
    | ShowFit
    | ReadsLost
    | LogBad
)
