"""What the Messages API answers, as types; the OpenAPI document is made of them."""

from typing import Any, Literal

from typing_extensions import TypedDict

from ....shared.inference import Count

StopReason = Literal[
    "end_turn", "stop_sequence", "max_tokens", "tool_use", "model_context_window_exceeded"
]


class ErrorDetail(TypedDict):
    """What went wrong."""

    type: str
    message: str


class AnthropicError(TypedDict):
    """An error."""

    type: Literal["error"]
    error: ErrorDetail
    request_id: str


class ThinkingDetails(TypedDict):
    """How many of an answer's tokens went into thinking."""

    thinking_tokens: Count


class MessageUsage(TypedDict):
    """Token counts. `input_tokens` are those that were not read from a cache."""

    input_tokens: Count
    cache_read_input_tokens: Count
    cache_creation_input_tokens: Count
    output_tokens: Count
    output_tokens_details: ThinkingDetails


class TextBlock(TypedDict):
    """Some text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(TypedDict):
    """Reasoning. Nothing is signed, and the signature says so."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(TypedDict):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class MessageAnswer(TypedDict):
    """A message; the reason to stop is null as long as it goes on."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Block]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class CountedInput(TypedDict):
    """How many tokens a message's input would have."""

    input_tokens: Count
