"""The agent socket, both directions: JSON messages, as frames that `framing` cuts.

The agent dials, says `Hello`, and is answered `Welcome` or `Reject`. Afterwards each side sends a
`Heartbeat` when it sent nothing else for `heartbeat_interval`. A peer that was silent for
`heartbeat_timeout` is lost. Every message counts as a heartbeat.

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
from .reports.model_fit import ModelFit
from .reports.model_info import ModelInfo
from .reports.statistics import Statistics
from .since import without_newer
from .strict import LAZY, STRICT, ListOf
from .tracing.trace_context import Traceparent

PROTOCOL_VERSION = 1
"""Raised with each field that comes after version 0.1.0, which is then marked with `Since`."""

OLDEST_PROTOCOL = 1
"""The balancer rejects older versions than this, and newer ones than its own.

A hello has only fields that this version knows, so that an older balancer can read it, and reject
it in words; the agent then dials again with an older version. Both speak the version of the hello.
"""

BALANCER_HEADER = "Arriero-Balancer"
WORKERS_HEADER = "Arriero-Workers"
"""Headers of the answer to an agent's dial: the balancer's own name, drawn at its start, and how
many workers it has and which of them live."""

Slots = Annotated[int, Field(ge=0, le=4096)]
Secret = Annotated[str, Field(min_length=1, max_length=128)]
RejectCode = Literal["identity_taken"]
MAX_ISSUES = 64

MAX_CODE = 64
MAX_WORDS = 2000
"""Characters of an issue's or a notice's message, and of a hint."""
MAX_NAME = 1024
"""Characters of a tool's name, or of a call's id, as a model or a server writes them."""
MAX_PIECE_TEXT = 2**24
MAX_PIECE_TOKENS = 2**18
"""Most of one piece; much may have waited for a slow connection."""

_Code = Annotated[str, Field(max_length=MAX_CODE)]
_Words = Annotated[str, Field(max_length=MAX_WORDS)]
_Name = Annotated[str, Field(max_length=MAX_NAME)]


# ---- what both sides send


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A sign of life."""

    __pydantic_config__ = STRICT
    type: Literal["heartbeat"] = "heartbeat"


# ---- from the agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """Why the agent cannot do its work; `code` is stable, `message` for people.

    `hint` says what to do about it, where there is something to do. `adapter`: only this one of the
    model's adapters is missing because of it.
    """

    __pydantic_config__ = STRICT
    code: _Code
    message: _Words
    hint: _Words = ""
    adapter: AdapterName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The agent's first frame. `agent_id` is drawn anew at each start of an agent.

    A host that serves several models is an agent for each of them, and one more where there may be
    room for another. These have the same `host`, and share the memory of `facts`. `num_places` is
    how many they are, as far as this one knows.

    An agent without an engine process says in `loading` which model it will serve again: requests
    for that model wait. It counts as long as the agent reports no `model`.

    `takes_over`: a new engine process of an agent that is still connected. The link before it gets
    no more work, finishes what it has, and leaves. `work` is how far its assignment is.

    `secret` is that of the `Welcome` that this balancer answered an earlier link with: the agent is
    the same process. Only said to the balancer that gave it.

    `peer` and `disk` are as in `Status`: the first request may be for what they tell of.
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
    """The agent changed: sent on change, never on a timer. Not accepting means draining.

    One with a `peer` lends computed prefixes to other agents, and fetches theirs. One with a `disk`
    caches prefixes there: when it comes back with the same `disk`, it still has them.
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
    """What one request gained in one step; see `inference.Token`."""

    __pydantic_config__ = STRICT
    type: Literal["piece"] = "piece"
    id: RequestId
    text: Annotated[str, Field(max_length=MAX_PIECE_TEXT)]
    kind: TokenKind = "content"
    tokens: Annotated[ListOf[TokenId], Field(max_length=MAX_PIECE_TOKENS)] = ()
    log_probs: Annotated[ListOf[TokenLogProbs], Field(max_length=MAX_TOKEN_IDS)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request ended well; nothing more comes for it. `stop_string` is the one that ended it."""

    __pydantic_config__ = STRICT
    type: Literal["ended"] = "ended"
    id: RequestId
    finish_reason: FinishReason
    stop_string: Annotated[str, Field(max_length=MAX_WORDS)] | None = None
    usage: Usage
    rates: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A request ended with an error; nothing more comes for it.

    With the code `shutting_down` the agent gives the request back: like that of an agent that is
    lost, it returns to the head of the queue, and another agent goes on where this one stopped.
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
    """The request's answer calls a tool; see `inference.ToolCallStarted`."""

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
    """Something the request's client should know; see `inference.Notice`."""

    __pydantic_config__ = STRICT
    type: Literal["noticed"] = "noticed"
    id: RequestId
    code: _Code
    message: _Words


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRead:
    """The request's answer begins; see `inference.Begun`."""

    __pydantic_config__ = STRICT
    type: Literal["prompt_read"] = "prompt_read"
    id: RequestId
    prompt_tokens: NumTokens
    cached_tokens: NumTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptProgress:
    """The request's prompt is being read; see `inference.Reading`. Sent once a second at most."""

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
"""Items in one message. One about several requests has at most 16 KiB, so some 300 of them; one
about a single request has no more than 256 that waited, and those of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One frame a step: what happened to all of this balancer's requests."""

    __pydantic_config__ = STRICT
    type: Literal["output"] = "output"
    items: Annotated[ListOf[Item], Field(max_length=MAX_ITEMS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What was asked under this id is answered; nothing more comes for it."""

    __pydantic_config__ = STRICT
    type: Literal["reply"] = "reply"
    id: RequestId
    result: Result


MAX_EVICTED = 4096
"""Keys in one message: some 80 kB."""

PrefixKey = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """Prefixes that this balancer's requests began with left the agent's cache.

    `keys` are those of `shared/inference/prefix_chain.py`, of any balancer's requests. Where the
    agent lost track of them, `everything` is gone. Sent with `Statistics`, so at most about once a
    second.
    """

    __pydantic_config__ = STRICT
    type: Literal["evicted"] = "evicted"
    keys: Annotated[ListOf[PrefixKey], Field(max_length=MAX_EVICTED)] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """The lines that `ReadLog` asked for, oldest first; none where there are no newer ones."""

    __pydantic_config__ = STRICT
    type: Literal["log_read"] = "log_read"
    id: RequestId
    lines: LogLines = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRead:
    """What `ReadFit` asked for, or why that cannot be said: `fit` or `issue`."""

    __pydantic_config__ = STRICT
    type: Literal["fit_read"] = "fit_read"
    id: RequestId
    fit: ModelFit | None = None
    issue: Issue | None = None


# ---- from the balancer


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The agent is registered. Times in seconds. `protocol` is the hello's.

    With the `secret` the agent proves that it is the same one when it dials this balancer again.
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
    """The agent is refused, and the socket closes. `retry` says whether dialling again can help.

    `identity_taken`: another agent has this `agent_id`.
    """

    __pydantic_config__ = STRICT
    type: Literal["reject"] = "reject"
    reason: str
    retry: bool
    code: RejectCode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Run this request; a slot was free by the balancer's count.

    With a `continuation` another agent had it before and gave a part of the answer: go on after
    that. Only agents whose model has that agent's fingerprint get one.
    `traceparent` is the span of the balancer that this is a part of, if it is traced.
    `fetch`: to get a beginning of the prompt from there is thought cheaper than to compute it. An
    agent computes what it cannot get. Only agents that reported a `peer` are sent this.
    `scope` stands for the caller, where it has a key: equal for the same key at all balancers, and
    nobody learns the key's name from it. Agents with `--cache-scope key` share what they computed
    among requests of one scope only.
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
    """Hand one prefix to the agent that shows this `ticket` within `seconds`.

    Only agents that reported a `peer` are sent this.
    """

    __pydantic_config__ = STRICT
    type: Literal["lend"] = "lend"
    ticket: Ticket
    seconds: Patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop this request. The agent answers `Ended` (`cancelled`) unless it has ended already.

    `is_unsent`: its `Start` was given up on the way; the agent answers `Refused` (`cancelled`).
    """

    __pydantic_config__ = STRICT
    type: Literal["cancel"] = "cancel"
    id: RequestId
    is_unsent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Answer this query. It takes no slot; an agent that cannot take it declines."""

    __pydantic_config__ = STRICT
    type: Literal["ask"] = "ask"
    id: RequestId
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """The query, `ReadLog` or `ReadFit` is cancelled; an answer may still come."""

    __pydantic_config__ = STRICT
    type: Literal["withdraw"] = "withdraw"
    id: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """Send the latest lines of the log, of those with numbers above `after`.

    Only asked while they are looked at. Level info and above. With `wait`, answer as soon as
    there is one, unless a `Withdraw` comes first.
    """

    __pydantic_config__ = STRICT
    type: Literal["read_log"] = "read_log"
    id: RequestId
    after: LogNumber = 0
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFit:
    """Say what this host would choose for the model of `source`, without downloading it.

    With `slots` and `context_size` where they are given, and for the rest by the agent's own
    settings. Only `http_hosts` may send it without TLS. Sent to agents whose facts say that they
    answer it. It may take as long as servers take to send headers.
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
    """The balancer is going down; running requests finish first. Reconnect after the close."""

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
    """`message` as a peer that speaks this version is sent it; the same object if it knows all."""
    return message if protocol >= PROTOCOL_VERSION else without_newer(message, protocol)


def encode_from_agent(message: FromAgent) -> bytes:
    """`message` as one text frame's UTF-8 bytes."""
    return _from_agent.dump_json(message, exclude_none=True)


def encode_from_balancer(message: FromBalancer) -> bytes:
    """`message` as one text frame's UTF-8 bytes."""
    return _from_balancer.dump_json(message, exclude_none=True)


def decode_from_agent(frame: str | bytes) -> FromAgent:
    """The agent's message in `frame`. Raises `pydantic.ValidationError`."""
    return _from_agent.validate_json(frame)


def decode_from_balancer(frame: str | bytes) -> FromBalancer:
    """The balancer's message in `frame`. Raises `pydantic.ValidationError`."""
    return _from_balancer.validate_json(frame)
