"""What a streamed message consists of, as types; the OpenAPI document is made of them.

`events` makes these as plain objects, and the deltas of most tokens as bytes. A test holds what is
sent against these types.
"""

from typing import Literal, NotRequired

from typing_extensions import TypeAliasType, TypedDict

from ....shared.inference import Count
from .answer_types import (
    AnthropicError,
    Block,
    ContextManaged,
    MessageAnswer,
    StopReason,
    TokenCounts,
)


class MessageStart(TypedDict):
    """The first event: the message without content."""

    type: Literal["message_start"]
    message: MessageAnswer


class Ping(TypedDict):
    """Nothing; clients skip it."""

    type: Literal["ping"]


class BlockStart(TypedDict):
    """A block begins, still empty."""

    type: Literal["content_block_start"]
    index: Count
    content_block: Block


class TextDelta(TypedDict):
    """Some more text."""

    type: Literal["text_delta"]
    text: str


class ThinkingDelta(TypedDict):
    """Some more reasoning."""

    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(TypedDict):
    """The placeholder for a signature, at the end of a thinking block."""

    type: Literal["signature_delta"]
    signature: str


class InputDelta(TypedDict):
    """Some more of a tool's input, a part of JSON text."""

    type: Literal["input_json_delta"]
    partial_json: str


class CompactionDelta(TypedDict):
    """The summary of a conversation, all of it in one event."""

    type: Literal["compaction_delta"]
    content: str


class BlockDelta(TypedDict):
    """Some more of a block."""

    type: Literal["content_block_delta"]
    index: Count
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta | CompactionDelta


class BlockStop(TypedDict):
    """A block is complete."""

    type: Literal["content_block_stop"]
    index: Count


class MessageEnd(TypedDict):
    """Why the message ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(TypedDict):
    """The message is complete; `usage` has its final token counts."""

    type: Literal["message_delta"]
    delta: MessageEnd
    usage: TokenCounts
    context_management: NotRequired[ContextManaged]


class MessageStop(TypedDict):
    """The last event of a message that ended well."""

    type: Literal["message_stop"]


MessageStreamEvent = TypeAliasType(
    "MessageStreamEvent",
    MessageStart
    | Ping
    | BlockStart
    | BlockDelta
    | BlockStop
    | MessageDelta
    | MessageStop
    | AnthropicError,
)
"""One event of a stream."""
