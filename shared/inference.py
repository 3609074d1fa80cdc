"""One neutral request and one neutral stream of events, whatever API the client speaks.

A door validates a body into a `GenerateRequest`; the exchange answers with events: any number of
`Token`, `ToolCallStarted`, `ToolCall` and `Notice`, then exactly one `Done` or `Failed`.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, Self

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from .errors import RequestError
from .strict import STRICT

RequestId = NewType("RequestId", str)
AgentId = NewType("AgentId", str)

Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0)]

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]
TokenKind = Literal["content", "reasoning", "tool_call"]
ToolChoice = Literal["auto", "none"]
Role = Literal["system", "developer", "user", "assistant", "tool"]

MAX_STOP_STRINGS = 16
MAX_LOGIT_BIASES = 1024
MAX_MESSAGES = 4096

_TOKEN_ID = re.compile(r"\d{1,9}", re.ASCII)


def _token_id(key: str) -> str:
    if not _TOKEN_ID.fullmatch(key):
        raise ValueError("must be a token id of at most 9 digits")
    return key


StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]
MaxTokens = Annotated[int, Field(ge=1, lt=2**31)]
CacheKey = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Temperature = Annotated[float, Field(ge=0, le=10)]
TopK = Annotated[int, Field(ge=0, lt=2**31)]
TopP = Annotated[float, Field(gt=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
RepeatPenalty = Annotated[float, Field(gt=0, le=10)]
TokenPenalty = Annotated[float, Field(ge=-2, le=2)]
LogitBias = Annotated[
    dict[
        Annotated[str, AfterValidator(_token_id)],
        Annotated[float, Field(ge=-100, le=100)],
    ],
    Field(max_length=MAX_LOGIT_BIASES),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """One part of a message's content."""

    __pydantic_config__ = STRICT

    type: Literal["text"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a conversation, as chat templates expect it."""

    __pydantic_config__ = STRICT

    role: Role
    content: str | tuple[TextPart, ...] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[dict[str, Any], ...] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The content as one string; parts are joined as they stand."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content)


Messages = Annotated[tuple[ChatMessage, ...], Field(min_length=1, max_length=MAX_MESSAGES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """What to generate and how. Exactly one of `prompt` (raw text) and `messages` is given.

    `None` leaves a value to its default, which is llama.cpp's. `logit_bias` maps token ids (as
    JSON keys, so strings of digits) to a bias in logits, -100 to 100. `max_tokens` of `None` goes
    on to the slot's context ceiling. A `tool_choice` of `none` hides the `tools`. With `n_discard`
    it goes on beyond that, and a prompt may be longer: so many of the oldest tokens after the head
    are discarded each time. `prefill_only` computes the prompt, for later requests that begin with
    it, and generates nothing. `cache_key` names a prompt stored by the agent, of which the part
    that this one begins with is not computed again; `save_cache` stores prompt and answer under
    that name when the request ended well.
    """

    __pydantic_config__ = STRICT

    prompt: str | None = None
    messages: Messages | None = None
    model: str | None = None
    stream: bool = True
    max_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    min_p: MinP | None = None
    repeat_penalty: RepeatPenalty | None = None
    presence_penalty: TokenPenalty | None = None
    frequency_penalty: TokenPenalty | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    logit_bias: LogitBias | None = None
    stop: Annotated[tuple[StopString, ...], Field(max_length=MAX_STOP_STRINGS)] = ()
    ignore_eos: bool = False
    thinking: bool | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    tool_choice: ToolChoice | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    n_discard: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    prefill_only: bool = False
    cache_key: CacheKey | None = None
    save_cache: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give exactly one of `prompt` and `messages`")
        return self

    @field_validator("prefill_only", "cache_key")
    @classmethod
    def _unshifted(cls, value: bool | str | None, info: ValidationInfo) -> bool | str | None:
        if value and info.data.get("n_discard") is not None:
            raise ValueError("must not stand beside `n_discard`: what moves is not kept")
        return value

    @field_validator("save_cache")
    @classmethod
    def _under_a_key(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("cache_key") is None:
            raise ValueError("must have a `cache_key` beside it to save under")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts. `cached_tokens` of the prompt were not computed again."""

    __pydantic_config__ = STRICT

    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    completion_tokens: Count = 0
    reasoning_tokens: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Speeds by the engine's own clock, in tokens a second; `None` where there was no such step."""

    __pydantic_config__ = STRICT

    prefill_tokens_per_second: Rate | None = None
    decode_tokens_per_second: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """When things happened, in milliseconds since the request was accepted, and `Rates`."""

    queue_ms: float
    first_token_ms: float | None
    total_ms: float
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """Some text, whole UTF-8 characters, and the ids of the tokens that made it.

    `tokens` may be empty (held-back text that is let go) and may stand for more or less text than
    `text` shows, since a character can span tokens; over a whole answer they are complete. Of the
    kind `tool_call` the text is JSON: a part of the arguments of the call that started last.
    """

    text: str
    kind: TokenKind = "content"
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The model calls the tool `name`; the arguments follow. `id` is the call's own."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call is complete. `arguments` is JSON as the model wrote it, not always valid."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the client should know and that ends nothing."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Done:
    """The request ended well; a `stop_string` is the one that ended it."""

    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    agent: str
    stop_string: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended with a typed error."""

    error: RequestError


Event = Token | ToolCallStarted | ToolCall | Notice | Done | Failed
EndEvent = Done | Failed
