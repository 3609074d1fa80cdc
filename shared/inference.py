"""One neutral request and one neutral stream of events, whatever API the client speaks.

An API validates a body into a `GenerateRequest`; the fleet answers with events: any number of
`Token`, `ToolCallStarted`, `ToolCall` and `Notice`, then exactly one `Done` or `Failed`. A `Begun`
comes before the answer's first token, unless it fails before. `Waiting` comes for clients that
asked for it, while the request has no agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NewType, Self

from pydantic import (
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from .errors import RequestError
from .sampling import SamplingChoices
from .strict import STRICT, ListOf
from .template_variables import TemplateVariables

RequestId = NewType("RequestId", str)
AgentId = NewType("AgentId", str)

Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]
TokenKind = Literal["content", "reasoning", "tool_call", "prompt"]
Role = Literal["system", "developer", "user", "assistant", "tool"]

MAX_MESSAGES = 4096
MAX_PARTS = 4096
"""Most parts of one message, and most calls."""
MAX_TOOLS = 1024
MAX_TOP_LOGPROBS = 20
MAX_GRAMMAR = 65_536
"""Characters of a grammar or a regular expression."""
MAX_TOKEN_IDS = 2**20
"""Most token ids of one prompt or text."""

PromptInput = str | Annotated[ListOf[TokenId], Field(max_length=MAX_TOKEN_IDS)]
MaxTokens = Annotated[int, Field(ge=1, lt=2**31)]
CacheKey = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """One part of a message's content."""

    __pydantic_config__ = STRICT

    type: Literal["text"]
    text: str


TextParts = Annotated[ListOf[TextPart], Field(max_length=MAX_PARTS)]
ToolCalls = Annotated[ListOf[dict[str, Any]], Field(max_length=MAX_PARTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a conversation, as chat templates expect it."""

    __pydantic_config__ = STRICT

    role: Role
    content: str | TextParts | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: ToolCalls | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The content as one string; parts are joined as they stand."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content)


GrammarText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_GRAMMAR)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaGrammar:
    """JSON that matches `schema`, with properties in the schema's order."""

    __pydantic_config__ = STRICT

    type: Literal["json_schema"]
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GbnfGrammar:
    """A grammar in llama.cpp's GBNF notation; it starts at the rule `root`."""

    __pydantic_config__ = STRICT

    type: Literal["gbnf"]
    grammar: GrammarText


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexGrammar:
    """Text that `pattern` matches as a whole."""

    __pydantic_config__ = STRICT

    type: Literal["regex"]
    pattern: GrammarText


Grammar = Annotated[
    JsonSchemaGrammar | GbnfGrammar | RegexGrammar,
    Field(discriminator="type"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTool:
    """The tool that must be called."""

    __pydantic_config__ = STRICT

    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]


ToolChoice = Literal["auto", "none", "required"] | NamedTool
Messages = Annotated[ListOf[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
ToolList = Annotated[ListOf[dict[str, Any]], Field(max_length=MAX_TOOLS)]


TO_GO_ON = "needs `messages` that end with an assistant's message that has content"


def can_go_on(messages: Sequence[ChatMessage] | None) -> bool:
    """Whether `continue_final_message` has something to continue."""
    return messages is not None and messages[-1].role == "assistant" and bool(messages[-1].text)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest(SamplingChoices):
    """What to generate and how. Exactly one of `prompt` and `messages` is given.

    - `prompt`: raw text, or the model's own token ids, to which nothing is added.
    - `max_tokens`: most tokens of the answer. `None`: up to the slot's context ceiling.
    - `n_discard`: prompt and answer may exceed the ceiling. Each time the context is full, this
      many of the oldest tokens after the head are discarded.
    - `logprobs`: each token comes with its log-probability and those of the `top_logprobs` most
      likely tokens, all before sampling changes them.
    - `prompt_logprobs`: the prompt is sent before the answer, with its tokens' log-probabilities.
      The whole prompt is computed for that, even if it is cached. The first token has none.
    - `suffix`: the answer is the text between `prompt` and `suffix`.
    - `tool_choice`: `none` hides the `tools`; `required` or a name forces a call of them.
    - `parallel_tool_calls`: `false` allows one call at most.
    - `grammar`: constrains what is neither reasoning nor a call.
    - `prefill_only`: computes the prompt for later requests that begin with it, and generates
      nothing.
    - `chat_template_kwargs`: further variables for the model's chat template.
    - `continue_final_message`: the answer continues the last message.
    - `add_generation_prompt`: `false` leaves out the template's beginning of an answer.
    - `cache_key`: the name of a prompt that the agent has stored. The beginning that both prompts
      share is not computed again.
    - `save_cache`: stores prompt and answer under `cache_key` when the request ends well.
    """

    __pydantic_config__ = STRICT

    prompt: PromptInput | None = None
    messages: Messages | None = None
    model: str | None = None
    stream: bool = True
    max_tokens: MaxTokens | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    logprobs: bool = False
    top_logprobs: TopLogprobs | None = None
    suffix: str | None = None
    thinking: bool | None = None
    chat_template_kwargs: TemplateVariables | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    grammar: Grammar | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    n_discard: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    prefill_only: bool = False
    prompt_logprobs: bool = False
    cache_key: CacheKey | None = None
    save_cache: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give exactly one of `prompt` and `messages`")
        return self

    @field_validator("top_logprobs")
    @classmethod
    def _of_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value and not info.data.get("logprobs"):
            raise ValueError("needs `logprobs: true`")
        return value

    @field_validator("suffix")
    @classmethod
    def _of_prompt(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("prompt") is None:
            raise ValueError("needs a `prompt`, not `messages`")
        return value

    @field_validator("prefill_only", "cache_key")
    @classmethod
    def _unshifted(cls, value: bool | str | None, info: ValidationInfo) -> bool | str | None:
        if value and info.data.get("n_discard") is not None:
            raise ValueError(
                "cannot be used with `n_discard`: a prompt that is shifted is not kept"
            )
        return value

    @field_validator("prompt_logprobs")
    @classmethod
    def _of_a_whole_prompt(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("logprobs"):
            raise ValueError("needs `logprobs: true`")
        if value and info.data.get("n_discard") is not None:
            raise ValueError("cannot be used with `n_discard`: discarded tokens have none")
        if value and info.data.get("suffix"):
            raise ValueError("cannot be used with `suffix`, which is a part of the prompt, too")
        return value

    @field_validator("continue_final_message")
    @classmethod
    def _of_an_answer(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not can_go_on(info.data.get("messages")):
            raise ValueError(TO_GO_ON)
        return value

    @field_validator("save_cache")
    @classmethod
    def _under_a_key(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("cache_key") is None:
            raise ValueError("needs a `cache_key`, under which the prompt is saved")
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
    """Times in milliseconds since the request was accepted, `Rates`, and moves between agents.

    After a move the rates are those of the last agent.
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

    A prompt's first token has none: nothing comes before it.
    """

    __pydantic_config__ = ConfigDict(**STRICT, ser_json_bytes="base64", val_json_bytes="base64")

    token: Count
    piece: bytes
    log_prob: float | None = None


@dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """Those of one token of answer or prompt, and of the most likely tokens in its place."""

    __pydantic_config__ = STRICT

    chosen: LogProb
    top: Annotated[ListOf[LogProb], Field(max_length=MAX_TOP_LOGPROBS)] = ()


class Token(NamedTuple):
    """A piece of text, always whole characters, and the ids of new tokens.

    `tokens` and `text` need not match: a character can span tokens, and text may be held back while
    it could be the beginning of a stop string. Over a whole answer both are complete.

    `log_probs`, if requested, are those of the tokens whose text begins in `text`. A token without
    text comes with the text that follows.

    A `kind` of `prompt` is a part of the prompt; it comes before the answer, without `tokens`. A
    `kind` of `tool_call` is a part of the arguments, as JSON, of the call that started last.

    A named tuple, since one is made for each token and stream: that takes a third of the time of a
    frozen dataclass.
    """

    text: str
    kind: TokenKind = "content"
    tokens: tuple[int, ...] = ()
    log_probs: tuple[TokenLogProbs, ...] = ()

    @property
    def is_silent(self) -> bool:
        """Whether it shows nothing: only a marker, or a part of a character."""
        return not self.text and not self.log_probs


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
    """A warning to the client; the request goes on."""

    code: str
    message: str


WaitsFor = Literal["slot", "model"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The request waits at `position` (from 1), for a slot or for an agent that has its model.

    `seconds_left` is an estimate in whole seconds, where there is one.
    """

    position: int
    what: WaitsFor
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """The prompt is computed. `cached_tokens` of it were not computed again."""

    prompt_tokens: int
    cached_tokens: int


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


Event = Waiting | Token | ToolCallStarted | ToolCall | Notice | Begun | Done | Failed
EndEvent = Done | Failed
