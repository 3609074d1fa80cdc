"""The decisions of the fleet's core, which the fleet runtime carries out in order."""

from dataclasses import dataclass
from typing import NewType

from ...shared.errors import RequestError
from ...shared.inference import Event, RequestId, Token
from ...shared.messages import FitRead, FromBalancer, LogRead
from ...shared.queries import Result
from .recorder import NOWHERE, Ending, MoveReason, Origin

LinkId = NewType("LinkId", int)
"""One socket of one agent. An agent that dials again has a new link and the same `AgentId`."""


@dataclass(frozen=True, slots=True)
class Send:
    """Put `message` on the link's socket."""

    link: LinkId
    message: FromBalancer


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the link's socket once all messages are sent. The core has forgotten the link."""

    link: LinkId
    reason: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass `event` to the request's stream. No event follows a `Done` or `Failed`."""

    request: RequestId
    event: Event


@dataclass(frozen=True, slots=True)
class DeliverTokens:
    """Deliver the tokens of one step of an agent to their streams, in order, and record them.

    `num_tokens` counts generated tokens: a text may stand for several tokens, or none. `gaps` are
    the seconds since the previous token, for all pieces except each request's first; the tokens of
    one piece share the time since the previous piece.
    """

    tokens: tuple[tuple[RequestId, Token], ...]
    num_tokens: int
    gaps: tuple[float, ...] = ()
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not accept the new request."""

    request: RequestId
    error: RequestError


@dataclass(frozen=True, slots=True)
class Settle:
    """Answer the query: with a result for each part, in order, or with an error."""

    query: RequestId
    outcome: tuple[Result, ...] | RequestError


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Record: the first token came `seconds` after the request was accepted."""

    seconds: float
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Moved:
    """Record and log: a request left the agent of `origin` for another."""

    request: RequestId
    reason: MoveReason
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Finish:
    """Record and log how a request ended."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class ShowLog:
    """Pass the lines of an agent's log to the reader that waits for them."""

    message: LogRead


@dataclass(frozen=True, slots=True)
class ShowFit:
    """Pass an agent's choice of options to the reader that waits for it."""

    message: FitRead


@dataclass(frozen=True, slots=True)
class ReadsLost:
    """End these reads, because their link was lost."""

    ids: tuple[RequestId, ...]


@dataclass(frozen=True, slots=True)
class LogBad:
    """Log that a link ended because of its message, with the traceback of `error`, if any.

    After an internal error, requests may have ended without a message to their clients: see
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
