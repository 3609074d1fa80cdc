"""The messages of the agent socket, in both directions: JSON, sent in frames by `framing`.

The agent connects and sends `Hello`; the balancer answers `Welcome` or `Reject`. Afterwards each
side sends a `Heartbeat` if it sent nothing else for `heartbeat_interval`. A peer that was silent
for `heartbeat_timeout` is lost. Every message counts as a heartbeat.

A message is decoded and checked in about a microsecond, so tokens need no faster format.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter

from .continuation import Continuation
from .errors import WireError
from .inference import (
    MAX_TOKEN_IDS,
    AgentId,
    FinishReason,
    GenerateRequest,
    NumTokens,
    Rates,
    RequestId,
    TokenId,
    TokenKind,
    TokenLogProbs,
    Usage,
)
from .inference.adapters import AdapterName
from .inference.prefix_peers import CacheScope, CellsId, Patience, Peer, PrefixSource, Ticket
from .labels import Labels
from .models.assignments import Assign, HostFacts, NumSlots, Reload, Work
from .models.engine_options import AutoContext
from .models.sources import HttpHosts, Source
from .queries import Query, Result
from .reports.log_lines import LogLines, LogNumber
from .reports.model_info import ModelFit, ModelInfo
from .reports.statistics import Statistics
from .since import without_newer
from .strict import LAZY, STRICT, ListOf
from .tracing.trace_context import Traceparent

PROTOCOL_VERSION = 1
"""The protocol's version. Raise it with each field after version 0.1.0, marked with `Since`."""

OLDEST_PROTOCOL = 1
"""The oldest version that the balancer accepts; the newest is its own.

A hello has only fields of this version, so that an older balancer can read the hello and say why
it rejects it. The agent then connects again with an older version. Both sides speak the version of
the hello.
"""

BALANCER_HEADER = "Arriero-Balancer"
WORKERS_HEADER = "Arriero-Workers"
"""Headers of the answer to an agent's connection.

They have the balancer's name, which it draws at its start, and the number of its workers with the
list of running ones.
"""

Slots = Annotated[int, Field(ge=0, le=4096)]
Secret = Annotated[str, Field(min_length=1, max_length=128)]
RejectCode = Literal["identity_taken"]
MAX_ISSUES = 64

MAX_CODE = 64
MAX_WORDS = 2000
"""Maximum characters of an issue's or a notice's message, and of a hint."""
MAX_NAME = 1024
"""Maximum characters of a tool's name, or of a call's id, as a model or server writes it."""
MAX_PIECE_TEXT = 2**24
MAX_PIECE_TOKENS = 2**18
"""Maximum text and tokens of a piece, since many pieces can be merged for a slow connection."""

_Code = Annotated[str, Field(max_length=MAX_CODE)]
_Words = Annotated[str, Field(max_length=MAX_WORDS)]
_Name = Annotated[str, Field(max_length=MAX_NAME)]


# ---- what both sides send


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A frame that only shows that the sender is alive."""

    __pydantic_config__ = STRICT
    type: Literal["heartbeat"] = "heartbeat"


# ---- from the agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A fault that keeps the agent from its work; `code` is stable, `message` for people.

    `hint` says what to do about it. If `adapter` is set, only this adapter of the model is missing.
    """

    __pydantic_config__ = STRICT
    code: _Code
    message: _Words
    hint: _Words = ""
    adapter: AdapterName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The agent's first frame. `agent_id` is drawn anew at each start of an agent.

    A host that serves several models runs an agent for each model, and one more if there may be
    room for another. These agents have the same `host`, and share the memory of `facts`.
    `num_places` is their number, as far as this agent knows.

    An agent whose engine process is not running says in `loading` which model it will serve again:
    requests for that model wait. `loading` counts as long as the agent reports no `model`.

    `takes_over`: the link belongs to a new engine process of an agent that is still connected. The
    earlier link gets no more requests, finishes the running ones, and closes. `work` is the
    progress of the assignment.

    `secret` is the secret of this balancer's earlier `Welcome`; it proves that the agent is the
    same process. The agent sends the secret only to the balancer that gave it.

    `peer` and `disk` are as in `Status`: the first request may be for prefixes that they offer.
    """

    __pydantic_config__ = STRICT
    type: Literal["hello"] = "hello"
    protocol: Annotated[int, Field(ge=0, le=2**31 - 1)]
    agent_id: Annotated[AgentId, Field(min_length=1, max_length=200)]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    version: Annotated[str, Field(max_length=100)]
    slots: Slots
    model: ModelInfo | None = None
    loading: ModelInfo | None = None
    labels: Labels = field(default_factory=dict)
    facts: HostFacts = field(default_factory=HostFacts)
    work: Work | None = None
    takes_over: bool = False
    host: Annotated[AgentId, Field(min_length=1, max_length=200)] | None = None
    num_places: Annotated[int, Field(ge=1, le=1024)] = 1
    secret: Secret | None = field(default=None, repr=False)
    peer: Peer | None = None
    disk: CellsId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The agent's state, sent on each change and never on a timer. `accepting` is false on drain.

    An agent with a `peer` lends cached prefixes to other agents, and fetches theirs. An agent with
    a `disk` caches prefixes on disk: if it returns with the same `disk`, it still has them.
    """

    __pydantic_config__ = STRICT
    type: Literal["status"] = "status"
    slots: Slots
    accepting: bool
    model: ModelInfo | None = None
    issues: Annotated[ListOf[Issue], Field(max_length=MAX_ISSUES)] = ()
    work: Work | None = None
    peer: Peer | None = None
    disk: CellsId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The text and tokens that a request gained in one step; see `inference.Token`."""

    __pydantic_config__ = STRICT
    type: Literal["piece"] = "piece"
    id: RequestId
    text: Annotated[str, Field(max_length=MAX_PIECE_TEXT)]
    kind: TokenKind = "content"
    tokens: Annotated[ListOf[TokenId], Field(max_length=MAX_PIECE_TOKENS)] = ()
    log_probs: Annotated[ListOf[TokenLogProbs], Field(max_length=MAX_TOKEN_IDS)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request ended without an error; no message about it follows.

    `stop_string` is the stop string that ended it, if any.
    """

    __pydantic_config__ = STRICT
    type: Literal["ended"] = "ended"
    id: RequestId
    finish_reason: FinishReason
    stop_string: Annotated[str, Field(max_length=MAX_WORDS)] | None = None
    usage: Usage
    rates: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A request ended with an error; no message about it follows.

    With the code `shutting_down` the agent gives the request back. Like a request of a lost agent,
    it returns to the head of the queue, and another agent continues the answer.
    """

    __pydantic_config__ = STRICT
    type: Literal["refused"] = "refused"
    id: RequestId
    error: WireError


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The agent has no free slot: the request returns to the head of the queue."""

    __pydantic_config__ = STRICT
    type: Literal["busy"] = "busy"
    id: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """The answer begins to call a tool; see `inference.ToolCallStarted`."""

    __pydantic_config__ = STRICT
    type: Literal["call_started"] = "call_started"
    id: RequestId
    call_id: _Name
    name: _Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """The call that started last is complete; see `inference.ToolCall`."""

    __pydantic_config__ = STRICT
    type: Literal["called"] = "called"
    id: RequestId
    call_id: _Name
    name: _Name
    arguments: Annotated[str, Field(max_length=MAX_PIECE_TEXT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A warning to the request's client; see `inference.Notice`."""

    __pydantic_config__ = STRICT
    type: Literal["noticed"] = "noticed"
    id: RequestId
    code: _Code
    message: _Words


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRead:
    """The prompt is read and the answer begins; see `inference.Begun`."""

    __pydantic_config__ = STRICT
    type: Literal["prompt_read"] = "prompt_read"
    id: RequestId
    prompt_tokens: NumTokens
    cached_tokens: NumTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptProgress:
    """The agent reads the request's prompt; see `inference.Reading`. Sent at most once a second."""

    __pydantic_config__ = STRICT
    type: Literal["prompt_progress"] = "prompt_progress"
    id: RequestId
    prompt_tokens: NumTokens
    read_tokens: NumTokens
    cached_tokens: NumTokens


Item = Annotated[
    Piece | CallStarted | Called | Noticed | PromptProgress | PromptRead | Ended | Refused | Busy,
    Field(discriminator="type"),
]


MAX_ITEMS = 1024
"""Maximum items of a message.

A message about several requests has at most 16 KiB, so some 300 items. A message about one request
has at most 256 items that waited, and the items of a step.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The items that a step gave for this balancer's requests, in one frame."""

    __pydantic_config__ = STRICT
    type: Literal["output"] = "output"
    items: Annotated[ListOf[Item], Field(max_length=MAX_ITEMS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to the query with this id; no message about it follows."""

    __pydantic_config__ = STRICT
    type: Literal["reply"] = "reply"
    id: RequestId
    result: Result


MAX_EVICTED = 4096
"""Maximum keys of a message: some 80 kB."""

PrefixKey = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """Prefixes of this balancer's requests that left the agent's cache.

    `keys` are keys of `shared/inference/prefix_chain.py`, of any balancer's requests. `everything`
    is true if the agent no longer knows which prefixes left. The message is sent with
    `Statistics`, so at most about once a second.
    """

    __pydantic_config__ = STRICT
    type: Literal["evicted"] = "evicted"
    keys: Annotated[ListOf[PrefixKey], Field(max_length=MAX_EVICTED)] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """The lines that `ReadLog` asked for, oldest first; empty if there are no newer lines."""

    __pydantic_config__ = STRICT
    type: Literal["log_read"] = "log_read"
    id: RequestId
    lines: LogLines = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRead:
    """The answer to `ReadFit`: the `fit`, or the `issue` that prevented an answer."""

    __pydantic_config__ = STRICT
    type: Literal["fit_read"] = "fit_read"
    id: RequestId
    fit: ModelFit | None = None
    issue: Issue | None = None


# ---- from the balancer


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The balancer registered the agent. Times in seconds. `protocol` is the hello's version.

    The agent sends `secret` when it connects to this balancer again, to prove that it is the same
    agent.
    """

    __pydantic_config__ = STRICT
    type: Literal["welcome"] = "welcome"
    protocol: int
    version: str
    heartbeat_interval: Annotated[float, Field(gt=0)]
    heartbeat_timeout: Annotated[float, Field(gt=0)]
    secret: Secret | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """The balancer refuses the agent and closes the socket.

    `retry` says whether connecting again can help. `identity_taken`: another agent has this
    `agent_id`.
    """

    __pydantic_config__ = STRICT
    type: Literal["reject"] = "reject"
    reason: str
    retry: bool
    code: RejectCode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Run this request; by the balancer's count the agent has a free slot.

    A request with a `continuation` ran on another agent, which answered a part: continue after
    that part. Only agents whose model has the other agent's fingerprint get a continuation.
    `traceparent` is the balancer's span of the request, if it is traced. `fetch` names an agent
    that has a prefix of the prompt, if fetching the prefix seems cheaper than computing it. If the
    fetch fails, the agent computes the prefix. Only agents that reported a `peer` get a `fetch`.
    `scope` stands for the caller's key: it is equal for the same key at all balancers, and does
    not reveal the key's name. Agents with `--cache-scope key` share cached prefixes only among
    requests of one scope.
    """

    __pydantic_config__ = STRICT
    type: Literal["start"] = "start"
    id: RequestId
    request: GenerateRequest
    continuation: Continuation | None = None
    traceparent: Traceparent | None = None
    fetch: PrefixSource | None = None
    scope: CacheScope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lend:
    """Lend one prefix to the agent that shows this `ticket` within `seconds`.

    Only agents that reported a `peer` get this message.
    """

    __pydantic_config__ = STRICT
    type: Literal["lend"] = "lend"
    ticket: Ticket
    seconds: Patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop this request. The agent answers `Ended` (`cancelled`) unless it has ended already.

    `is_unsent`: the balancer gave up its `Start` before it was sent completely; the agent answers
    `Refused` (`cancelled`).
    """

    __pydantic_config__ = STRICT
    type: Literal["cancel"] = "cancel"
    id: RequestId
    is_unsent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Answer this query, which takes no slot. An agent that cannot answer it sends `Declined`."""

    __pydantic_config__ = STRICT
    type: Literal["ask"] = "ask"
    id: RequestId
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Cancel the query, `ReadLog` or `ReadFit`; an answer may still come."""

    __pydantic_config__ = STRICT
    type: Literal["withdraw"] = "withdraw"
    id: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """Send the last lines of the log that have numbers above `after`, from level info up.

    Balancers ask only while a user reads the log. With `wait`, the agent answers as soon as there
    is a line, or at a `Withdraw`.
    """

    __pydantic_config__ = STRICT
    type: Literal["read_log"] = "read_log"
    id: RequestId
    after: LogNumber = 0
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFit:
    """Say how this host would load the model of `source`, without downloading the model.

    The agent uses `slots` and `context_size` if given, and its own settings otherwise. Only
    `http_hosts` may send the model without TLS. Balancers ask only agents whose facts have
    `answers_fit`. The answer can take as long as servers take to send headers.
    """

    __pydantic_config__ = STRICT
    type: Literal["read_fit"] = "read_fit"
    id: RequestId
    source: Source
    slots: NumSlots | None = None
    context_size: AutoContext | None = None
    http_hosts: HttpHosts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """The balancer stops after its running requests. Connect again after the socket closes."""

    __pydantic_config__ = STRICT
    type: Literal["goodbye"] = "goodbye"


FromAgent = Annotated[
    Hello | Status | Statistics | Output | Reply | LogRead | FitRead | Evicted | Heartbeat,
    Field(discriminator="type"),
]
FromBalancer = Annotated[
    Welcome
    | Reject
    | Start
    | Lend
    | Cancel
    | Ask
    | Withdraw
    | Assign
    | Reload
    | ReadLog
    | ReadFit
    | Goodbye
    | Heartbeat,
    Field(discriminator="type"),
]

_from_agent: TypeAdapter[FromAgent] = TypeAdapter(FromAgent, config=LAZY)
_from_balancer: TypeAdapter[FromBalancer] = TypeAdapter(FromBalancer, config=LAZY)


_Sent = TypeVar("_Sent")


def for_version(message: _Sent, protocol: int) -> _Sent:
    """Return `message` without fields that a peer of this version does not know.

    If there are no such fields, the result is the same object.
    """
    return message if protocol >= PROTOCOL_VERSION else without_newer(message, protocol)


def encode_from_agent(message: FromAgent) -> bytes:
    """Encode `message` as the UTF-8 text of a frame."""
    return _from_agent.dump_json(message, exclude_none=True)


def encode_from_balancer(message: FromBalancer) -> bytes:
    """Encode `message` as the UTF-8 text of a frame."""
    return _from_balancer.dump_json(message, exclude_none=True)


def decode_from_agent(frame: str | bytes) -> FromAgent:
    """Decode the agent's message in `frame`. Raises `pydantic.ValidationError`."""
    return _from_agent.validate_json(frame)


def decode_from_balancer(frame: str | bytes) -> FromBalancer:
    """Decode the balancer's message in `frame`. Raises `pydantic.ValidationError`."""
    return _from_balancer.validate_json(frame)
