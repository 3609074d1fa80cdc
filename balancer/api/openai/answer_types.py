"""What the OpenAI API answers, as types; the OpenAPI document is made of them.

A token's chunk is written by hand (see `answers`), so a test holds those chunks against
`ChatChunk` and `CompletionChunk`.
"""

from collections.abc import Iterable
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from ....shared.inference import Count, UsedTier
from ..common.log_probs import TokenLogProb

ChatFinish = Literal["stop", "length", "tool_calls"]


class ErrorFields(TypedDict):
    """An error. `param` names the wrong field."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(TypedDict):
    """An error."""

    error: ErrorFields


# ---- usage


class PromptDetails(TypedDict):
    """How many of a prompt's tokens were not computed again."""

    cached_tokens: Count


class CompletionDetails(TypedDict):
    """How many of an answer's tokens went into reasoning."""

    reasoning_tokens: Count


class OpenAIUsage(TypedDict):
    """Token counts of all choices; a prompt counts once."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class QueryUsage(TypedDict):
    """Token counts of a call that generates nothing."""

    prompt_tokens: Count
    total_tokens: Count


# ---- chat


class FunctionCall(TypedDict):
    """`arguments` is JSON as the model wrote it."""

    name: str
    arguments: str


class ChatCall(TypedDict):
    """A call of a function."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class ChatMessage(TypedDict):
    """A message of the model. An answer of calls alone has no content."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ChatCall]]


class ChatLogProbs(TypedDict):
    """Log-probabilities of the tokens of a message's content."""

    content: list[TokenLogProb]
    refusal: None


class ChatChoice(TypedDict):
    """One of `n` answers."""

    index: Count
    message: ChatMessage
    logprobs: ChatLogProbs | None
    finish_reason: ChatFinish


class ChatCompletion(TypedDict):
    """A whole answer; `created` in Unix seconds."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    service_tier: UsedTier
    choices: list[ChatChoice]
    usage: OpenAIUsage


class FunctionDelta(TypedDict):
    """A part of a call's arguments; the name comes with the first."""

    name: NotRequired[str]
    arguments: str


class ChatCallDelta(TypedDict):
    """A part of a call; `id` and `type` come with the first."""

    index: Count
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class ChatDelta(TypedDict):
    """What a chunk adds to a message."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ChatCallDelta]]


class ChatChunkChoice(TypedDict):
    """What a chunk adds to a choice."""

    index: Count
    delta: ChatDelta
    logprobs: ChatLogProbs | None
    finish_reason: ChatFinish | None


class ChatChunk(TypedDict):
    """One event of a stream. With `include_usage` the last one has usage and no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    service_tier: UsedTier
    choices: list[ChatChunkChoice]
    usage: NotRequired[OpenAIUsage | None]


# ---- completions


class CompletionLogProbs(TypedDict):
    """Log-probabilities of a text's tokens, as parallel lists; a prompt's first token has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[Count]


class CompletionChoice(TypedDict):
    """One of `n` answers to one of the prompts."""

    index: Count
    text: str
    logprobs: CompletionLogProbs | None
    finish_reason: Literal["stop", "length"]


class Completion(TypedDict):
    """A whole answer; `created` in Unix seconds."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    service_tier: UsedTier
    choices: list[CompletionChoice]
    usage: OpenAIUsage


class CompletionChunkChoice(TypedDict):
    """What a chunk adds to a choice."""

    index: Count
    text: str
    logprobs: CompletionLogProbs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionChunk(TypedDict):
    """One event of a stream. With `include_usage` the last one has usage and no choices."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    service_tier: UsedTier
    choices: list[CompletionChunkChoice]
    usage: NotRequired[OpenAIUsage | None]


# ---- embeddings and ranking


class Embedding(TypedDict):
    """An input's vector: numbers, or 32-bit floats in base64."""

    object: Literal["embedding"]
    index: Count
    embedding: list[float] | str


class Embeddings(TypedDict):
    """A vector for each input, in their order."""

    object: Literal["list"]
    data: Iterable[Embedding]
    model: str
    usage: QueryUsage


class RankedDocument(TypedDict):
    """A document as it was given."""

    text: str


class Ranked(TypedDict):
    """How well the document at `index` answers the query."""

    index: Count
    relevance_score: float
    document: NotRequired[RankedDocument]


class Ranking(TypedDict):
    """Scores, the best first."""

    id: str
    object: Literal["list"]
    model: str
    results: list[Ranked]
    usage: QueryUsage
