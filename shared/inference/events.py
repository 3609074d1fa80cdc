"""The events of a request and their figures."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field

from ..errors import RequestError
from ..strict import LAZY, STRICT, ListOf
from .values import MAX_TOP_LOGPROBS, NumTokens, Rate, TokenId

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]
TokenKind = Literal["content", "reasoning", "tool_call", "prompt"]

MAX_TOKEN_BYTES = 2**16
"""Maximum bytes of one token; the longest known token has some hundreds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts. `cached_tokens` of the prompt were taken from the cache."""

    __pydantic_config__ = STRICT

    prompt_tokens: NumTokens = 0
    cached_tokens: NumTokens = 0
    completion_tokens: NumTokens = 0
    reasoning_tokens: NumTokens = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Speeds by the engine's clock, in tokens a second; `None` if the engine ran no such step."""

    __pydantic_config__ = STRICT

    prefill_tokens_per_second: Rate | None = None
    decode_tokens_per_second: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Times in milliseconds since the request was accepted, its speeds and number of moves.

    After a move to another agent, the speeds are the last agent's.
    """

    queue_ms: float
    first_token_ms: float | None
    total_ms: float
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    moves: int = 0


@dataclass(frozen=True, slots=True)
class LogProb:
    """A token's natural log-probability, and its bytes, which may be a part of a character.

    The first token of a prompt has no log-probability, because nothing precedes it.
    """

    __pydantic_config__ = ConfigDict(**STRICT, ser_json_bytes="base64", val_json_bytes="base64")

    token: TokenId
    piece: Annotated[bytes, Field(max_length=MAX_TOKEN_BYTES)]
    log_prob: Annotated[float, Field(ge=-1e5, le=0)] | None = None


@dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """The log-probabilities of one token and of the most likely tokens at its position."""

    __pydantic_config__ = STRICT

    chosen: LogProb
    top: Annotated[ListOf[LogProb], Field(max_length=MAX_TOP_LOGPROBS)] = ()


class Token(NamedTuple):
    """A piece of text, always whole characters, and the ids of new tokens.

    `tokens` and `text` need not match. A character can span several tokens, and text is held back
    while it can be the beginning of a stop string. Over a whole answer both are complete.

    `log_probs`, if requested, belong to the tokens whose text begins in `text`. A token without
    text comes with the text that follows.

    The `kind` `prompt` is a part of the prompt, which comes before the answer, without `tokens`.
    The `kind` `tool_call` is a part of the arguments, as JSON, of the call that started last.

    The type is a named tuple because one is made for each token and stream: making it takes a
    third of the time of a frozen dataclass.
    """

    text: str
    kind: TokenKind = "content"
    tokens: tuple[int, ...] = ()
    log_probs: tuple[TokenLogProbs, ...] = ()

    @property
    def is_silent(self) -> bool:
        """Return whether the token shows nothing: a control token, or a part of a character."""
        return not self.text and not self.log_probs


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The answer begins to call the tool `name`; the arguments follow. `id` is the call's id."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call is complete. `arguments` is the model's JSON text and may be invalid."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning to the client; the request goes on."""

    code: str
    message: str


WaitsFor = Literal["slot", "model"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The request waits at `position` (from 1) for a slot, or for an agent with its model.

    `seconds_left` is an estimate in whole seconds, if known. `reason` says why no agent serves the
    model.
    """

    position: int
    what: WaitsFor
    seconds_left: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """An agent reads the prompt: `num_read` of `num_tokens` so far; both are 0 if unknown.

    `num_cached` of the read tokens were taken from the cache. `seconds` have passed since the
    reading began.
    """

    num_read: int = 0
    num_tokens: int = 0
    num_cached: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Begun:
    """The prompt has been read. `cached_tokens` of it were taken from the cache."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Done:
    """The request ended without an error; `stop_string` is the stop string that ended it."""

    __pydantic_config__ = LAZY

    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    agent: str
    stop_string: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended with an error."""

    error: RequestError


Event = Waiting | Reading | Token | ToolCallStarted | ToolCall | Notice | Begun | Done | Failed
EndEvent = Done | Failed
