"""What a session wants done; its shell carries every decision out, in order."""

from dataclasses import dataclass

from ...shared.inference import GenerateRequest
from ...shared.messages import Heartbeat, Hello, Output, Reply, Statistics, Status
from ...shared.queries import Query
from ..engine.prompt_store.stored_prompt import StoredPrompt
from ..engine.sequence import NewSequence, SequenceId


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message to the balancer."""

    message: Hello | Status | Statistics | Output | Reply | Heartbeat


@dataclass(frozen=True, slots=True)
class MarkConnected:
    """The balancer let the agent in: start over with short pauses, tell people."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare this request, then report `prepared` or `preparation_failed` under the same id."""

    id: SequenceId
    request: GenerateRequest


@dataclass(frozen=True, slots=True)
class Abandon:
    """Nobody waits for this preparation any more; what it reports will be ignored."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Run:
    """Hand this sequence to the engine."""

    sequence: NewSequence


@dataclass(frozen=True, slots=True)
class Drop:
    """Take this sequence out of the engine; what it still yields will be ignored."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Finish:
    """Let the engine end this sequence well: the client has its answer, the state is wanted."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Save:
    """Store `prompt` under `key`, then report `saved` under the same id, whatever came of it."""

    id: SequenceId
    key: str
    prompt: StoredPrompt


@dataclass(frozen=True, slots=True)
class Consult:
    """Have this query answered, then report `answered` under the same id."""

    id: SequenceId
    query: Query


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Nobody waits for this query's answer any more; what is reported will be ignored."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Close:
    """Send what was to be sent, then close the socket. The session is over by then already."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Close the socket and never come back: dialling again cannot help."""

    reason: str


Decision = (
    Send
    | MarkConnected
    | Prepare
    | Abandon
    | Run
    | Finish
    | Drop
    | Save
    | Consult
    | Dismiss
    | Close
    | GiveUp
)
