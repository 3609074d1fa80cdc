"""What the native API answers, as types; the OpenAPI document is made of them.

A token's line is written by hand (see `events`), so a test holds those lines against `TokenEvent`.
"""

from collections.abc import Iterable
from typing import Literal, NotRequired

from typing_extensions import TypeAliasType, TypedDict

from ....shared.errors import PublicError
from ....shared.inference import (
    Count,
    FinishReason,
    Notice,
    Timings,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    Usage,
    WaitsFor,
)
from ..common.log_probs import TokenLogProb


class ErrorAnswer(TypedDict):
    """An error. One that ends an accepted request has its `id` in the header `X-Request-Id`."""

    error: PublicError


# ---- how a request ends


class DoneFields(TypedDict):
    """How a request ended. `stop_string` is the one that ended it, if one did."""

    finish_reason: FinishReason
    stop_string: NotRequired[str]
    usage: Usage
    timings: Timings
    agent: str


class AnswerFields(DoneFields):
    """A whole answer; what there is none of is left out."""

    text: str
    logprobs: NotRequired[list[TokenLogProb]]
    prompt_logprobs: NotRequired[list[TokenLogProb]]
    reasoning: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]
    warnings: NotRequired[list[Notice]]


class Answer(AnswerFields):
    """A whole answer with its request's id. Absent values are left out."""

    id: str


class FailedAnswer(ErrorAnswer):
    """One request of a batch that failed."""

    id: str


class BatchStatistics(TypedDict):
    """What a batch amounts to. Of requests that failed there is no more than their number.

    `total_ms` is the time from its beginning to its end, and `tokens_per_second` counts over it.
    `prefill_tokens_per_second` are the tokens of prompts that were computed over the time in which
    any request read its prompt, `decode_tokens_per_second` those that were generated over the time
    in which any request generated. `average_running` is how many had a slot at once, on average
    over the time in which any had one. Rates are null where there was no such time.
    """

    requests: Count
    failed: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    total_ms: float
    tokens_per_second: float | None
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    average_running: float | None


class BatchAnswer(TypedDict):
    """The answers in the order of the requests."""

    results: list[Answer | FailedAnswer]
    statistics: BatchStatistics


# ---- the events of a stream


_For = TypedDict("_For", {"for": WaitsFor})


class WaitingEvent(_For):
    """The request waits for a slot, or for an agent that has its model.

    `position` counts from 1. `seconds_left` is an estimate.
    """

    event: Literal["waiting"]
    id: str
    position: Count
    seconds_left: float | None


class TokenEvent(TypedDict):
    """A piece of text, always whole characters."""

    event: Literal["token"]
    id: str
    kind: TokenKind
    text: str
    logprobs: NotRequired[list[TokenLogProb]]


class ToolCallStartedEvent(TypedDict):
    """The model calls a tool; the arguments follow as tokens of the kind `tool_call`."""

    event: Literal["tool_call_started"]
    id: str
    call: ToolCallStarted


class ToolCallEvent(TypedDict):
    """A call is complete."""

    event: Literal["tool_call"]
    id: str
    call: ToolCall


class WarningEvent(TypedDict):
    """A warning; the request goes on."""

    event: Literal["warning"]
    id: str
    code: str
    message: str


class DoneEvent(DoneFields):
    """The last event of a request that ended well."""

    event: Literal["done"]
    id: str


class ErrorEvent(ErrorAnswer):
    """The last event of a request that failed."""

    event: Literal["error"]
    id: str


class BatchDoneEvent(TypedDict):
    """The last event of a batch, after those of all of its requests."""

    event: Literal["batch_done"]
    id: None
    statistics: BatchStatistics


NativeEvent = TypeAliasType(
    "NativeEvent",
    WaitingEvent
    | TokenEvent
    | ToolCallStartedEvent
    | ToolCallEvent
    | WarningEvent
    | DoneEvent
    | ErrorEvent
    | BatchDoneEvent,
)


# ---- queries


class EmbeddedInput(TypedDict):
    """An input's vector: numbers, or 32-bit floats in base64."""

    index: Count
    embedding: list[float] | str
    num_tokens: Count


class FailedInput(ErrorAnswer):
    """An input that cannot be embedded."""

    index: Count


class EmbedUsage(TypedDict):
    """Token counts of all inputs together."""

    prompt_tokens: Count


class EmbedFields(TypedDict):
    """A vector for each input."""

    embeddings: Iterable[EmbeddedInput | FailedInput]
    usage: EmbedUsage


class EmbedAnswer(EmbedFields):
    """A vector for each input, in their order."""

    id: str


class TokenizeFields(TypedDict):
    """The tokens of a text."""

    tokens: tuple[Count, ...]
    num_tokens: Count


class TokenizeAnswer(TokenizeFields):
    """The tokens of a text."""

    id: str


class DetokenizeFields(TypedDict):
    """The text of tokens; with `bytes` in base64 if they are not valid UTF-8."""

    text: str
    bytes: NotRequired[str]


class DetokenizeAnswer(DetokenizeFields):
    """The text of tokens; with `bytes` in base64 if they are not valid UTF-8."""

    id: str


class CountFields(TypedDict):
    """The number of tokens of a prompt, with those that the template adds."""

    num_tokens: Count


class CountAnswer(CountFields):
    """The number of tokens of a prompt, with those that the template adds."""

    id: str


QueryFields = EmbedFields | TokenizeFields | DetokenizeFields | CountFields


# ---- the balancer


class Health(TypedDict):
    """The process is alive."""

    status: Literal["ok"]


class SlotCounts(TypedDict):
    """Slots of all agents together."""

    total: Count
    busy: Count


class Readiness(TypedDict):
    """Whether requests can be served at once."""

    ready: bool
    slots: SlotCounts
