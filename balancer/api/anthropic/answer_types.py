"""What the Messages API answers, as types; the OpenAPI document is made of them."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from ....shared.inference import Count

StopReason = Literal[
    "end_turn",
    "stop_sequence",
    "max_tokens",
    "tool_use",
    "model_context_window_exceeded",
    "compaction",
]


class ErrorCode(TypedDict):
    """A short word for the error, for programs."""

    error_code: Literal["thread_not_found"]


class ErrorDetail(TypedDict):
    """What went wrong."""

    type: str
    message: str
    details: NotRequired[ErrorCode]


class AnthropicError(TypedDict):
    """An error."""

    type: Literal["error"]
    error: ErrorDetail
    request_id: str


class ThinkingDetails(TypedDict):
    """How many of an answer's tokens went into thinking."""

    thinking_tokens: Count


MessageTier = Literal["standard", "priority", "batch"]
"""The class that a request had in the queue."""


class TokenCounts(TypedDict):
    """Token counts. `input_tokens` are those that were not read from a cache."""

    input_tokens: Count
    cache_read_input_tokens: Count
    cache_creation_input_tokens: Count
    output_tokens: Count
    output_tokens_details: ThinkingDetails


class MessageUsage(TokenCounts):
    """Token counts, and how the request was served."""

    service_tier: MessageTier


class TextBlock(TypedDict):
    """Some text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(TypedDict):
    """Reasoning. The signature is a placeholder, since nothing is signed."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(TypedDict):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class CompactionBlock(TypedDict):
    """The summary of a conversation, or null if the model gave none.

    `tool_changes` are those of the conversation.
    """

    type: Literal["compaction"]
    content: str | None
    tool_changes: list[dict[str, Any]]


Block = TextBlock | ThinkingBlock | ToolUseBlock | CompactionBlock


class ThinkingCleared(TypedDict):
    """Thinking of old turns was left out of the prompt."""

    type: Literal["clear_thinking_20251015"]
    cleared_thinking_turns: Count
    cleared_input_tokens: Count


class ToolUsesCleared(TypedDict):
    """Results of old tool uses were left out of the prompt."""

    type: Literal["clear_tool_uses_20250919"]
    cleared_tool_uses: Count
    cleared_input_tokens: Count


AppliedEdit = ThinkingCleared | ToolUsesCleared


class ContextManaged(TypedDict):
    """The context edits that changed the prompt."""

    applied_edits: list[AppliedEdit]


class MessageAnswer(TypedDict):
    """A message; the reason to stop is null as long as it goes on.

    `context_management` is there if the request has it.
    """

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Block]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage
    context_management: NotRequired[ContextManaged]


class OriginalCount(TypedDict):
    """How many tokens a message's input would have without context edits."""

    original_input_tokens: Count


class CountedMessage(TypedDict):
    """How many tokens a message's input would have."""

    input_tokens: Count
    context_management: NotRequired[OriginalCount]
