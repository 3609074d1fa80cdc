"""Content blocks and messages of the Messages API.

Clients send back `signature`, `caller` and redacted thinking from answers, also from other
services. These are accepted, but not passed to the model.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from .....shared.inference import MAX_PARTS
from .....shared.strict import STRICT, ListOf
from .documents import Document, Image, SearchResult, Text, ToolReference
from .tools import ToolAddition, ToolChange, ToolRemoval

Json = dict[str, Any]

Changes = Annotated[ListOf[ToolChange], Field(max_length=MAX_PARTS)]

ResultBlock = Annotated[
    Text | Image | Document | SearchResult | ToolReference, Field(discriminator="type")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Reasoning of the model."""

    __pydantic_config__ = STRICT
    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedThinking:
    """Encrypted reasoning of another service's model."""

    __pydantic_config__ = STRICT
    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call of a tool. If the call was cut off, `input` may be another value than an object."""

    __pydantic_config__ = STRICT
    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: Any = None
    caller: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call."""

    __pydantic_config__ = STRICT
    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: str | Annotated[ListOf[ResultBlock], Field(max_length=MAX_PARTS)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A summary that replaces all earlier messages. Without `content` the block has no effect.

    `tool_changes` are the changes of tools in the replaced messages.
    """

    __pydantic_config__ = STRICT
    type: Literal["compaction"]
    content: str | None = None
    encrypted_content: str | None = None
    signature: str | None = None
    tool_changes: Changes | None = None


UserBlock = Annotated[
    Text | Image | Document | SearchResult | ToolResult | Compaction | ToolAddition | ToolRemoval,
    Field(discriminator="type"),
]
AssistantBlock = Annotated[
    Text | Thinking | RedactedThinking | ToolUse | Compaction, Field(discriminator="type")
]
SystemBlock = Annotated[Text | ToolAddition | ToolRemoval, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    """Instructions in the middle of a conversation, for one turn or for all later turns."""

    __pydantic_config__ = STRICT
    role: Literal["system", "developer"]
    content: str | Annotated[ListOf[SystemBlock], Field(max_length=MAX_PARTS)] = ()
    clear_at: Literal["next_user_message", "never"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message to the model, with results of its calls."""

    __pydantic_config__ = STRICT
    role: Literal["user"]
    content: str | Annotated[ListOf[UserBlock], Field(max_length=MAX_PARTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """A message of the model."""

    __pydantic_config__ = STRICT
    role: Literal["assistant"]
    content: str | Annotated[ListOf[AssistantBlock], Field(max_length=MAX_PARTS)]


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage,
    Field(discriminator="role"),
]

AnyBlock = UserBlock | AssistantBlock | SystemBlock


def as_blocks(message: AssistantMessage) -> tuple[AssistantBlock, ...]:
    """Return the content of an assistant's message as blocks."""
    content = message.content
    return (Text(text=content),) if isinstance(content, str) else content


def blocks_of(message: Message) -> tuple[AnyBlock, ...]:
    """Return the content of any message as blocks."""
    content = message.content
    return (Text(text=content),) if isinstance(content, str) else content
