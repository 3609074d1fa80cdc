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
"""What a balancer wants of the host, whichever of its processes hears it."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message to the balancer."""

    message: FromAgent


@dataclass(frozen=True, slots=True)
class MarkConnected:
    """The balancer let the agent in: start over with short pauses, log it."""


@dataclass(frozen=True, slots=True)
class KeepSecret:
    """Show this when this balancer is dialled again."""

    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class StartGeneration:
    """Answer this request as the sequence `id`; report what it produces."""

    id: SequenceId
    start: Start


@dataclass(frozen=True, slots=True)
class CancelGeneration:
    """The balancer cancelled it; its end still comes."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class FailGeneration:
    """End it with this error; its end still comes."""

    id: SequenceId
    error: RequestError


@dataclass(frozen=True, slots=True)
class DiscardGeneration:
    """End it without any further item; its release still comes."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class AnswerQuery:
    """Answer this query, then report `answered` under the same id."""

    id: QueryId
    query: Query


@dataclass(frozen=True, slots=True)
class WithdrawQuery:
    """This query's result is not needed any more; what is reported will be ignored."""

    id: QueryId


@dataclass(frozen=True, slots=True)
class Obey:
    """The balancer says what this host should serve, or asks what it would choose."""

    order: HostOrder


@dataclass(frozen=True, slots=True)
class Allow:
    """Send a prefix to the agent that shows this ticket within so many seconds."""

    ticket: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SendLog:
    """Report the log's lines with numbers above `after` under this id: `read_own_log`."""

    id: RequestId
    after: int


@dataclass(frozen=True, slots=True)
class Close:
    """Send what is queued, then close the socket. The session has already ended.

    With `is_failure` the close says so: what the agent had may be what ended it.
    """

    reason: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Close the socket and never come back: dialling again cannot help."""

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
