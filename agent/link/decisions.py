"""A session's decisions; its shell carries them out, in order."""

from dataclasses import dataclass, field

from ...shared.errors import RequestError
from ...shared.inference import RequestId
from ...shared.messages import FromAgent, ReadFit, Start
from ...shared.models.assignments import Assign, Reload
from ...shared.queries import Query
from ..generation.port import QueryId
from ..sequence_id import SequenceId

HostOrder = Assign | Reload | ReadFit
"""An order or question for the whole host; any of its processes may receive it."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message to the balancer."""

    message: FromAgent


@dataclass(frozen=True, slots=True)
class MarkConnected:
    """The balancer accepted the agent: reset the pauses, and log the connection."""


@dataclass(frozen=True, slots=True)
class KeepSecret:
    """Show this secret when this balancer is dialled again."""

    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class StartGeneration:
    """Answer this request as the sequence `id`, and report its items."""

    id: SequenceId
    start: Start


@dataclass(frozen=True, slots=True)
class CancelGeneration:
    """Cancel the sequence; its end is still reported."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class FailGeneration:
    """End the sequence with this error; its end is still reported."""

    id: SequenceId
    error: RequestError


@dataclass(frozen=True, slots=True)
class DiscardGeneration:
    """End the sequence without any further item; its release is still reported."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class AnswerQuery:
    """Answer this query, then report `answered` under the same id."""

    id: QueryId
    query: Query


@dataclass(frozen=True, slots=True)
class WithdrawQuery:
    """Withdraw this query; a later result will be ignored."""

    id: QueryId


@dataclass(frozen=True, slots=True)
class Obey:
    """Carry out the balancer's order or question about this host."""

    order: HostOrder


@dataclass(frozen=True, slots=True)
class Allow:
    """Send a prefix to the agent that shows this ticket within `seconds`."""

    ticket: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SendLog:
    """Report log lines with numbers above `after` under this id, with `read_own_log`."""

    id: RequestId
    after: int


@dataclass(frozen=True, slots=True)
class Close:
    """Send queued messages, then close the socket. The session has already ended.

    `is_failure` tells the balancer that the agent failed, perhaps because of a request.
    """

    reason: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Close the socket and do not dial again, since another dial cannot help."""

    reason: str


Decision = (
    Send
    | MarkConnected
    | KeepSecret
    | StartGeneration
    | CancelGeneration
    | FailGeneration
    | DiscardGeneration
    | AnswerQuery
    | WithdrawQuery
    | Obey
    | Allow
    | SendLog
    | Close
    | GiveUp
)
