"""Content blocks and messages of the Messages API, and their conversion to neutral messages.

`signature`, `caller` and the hidden (redacted) thinking of other services are accepted, since
clients send them back from answers, but are not passed to the model.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field
from pydantic_core import to_json

from ....shared.errors import InvalidRequest
from ....shared.inference import MAX_PARTS, ChatMessage
from ....shared.strict import STRICT, ListOf

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text."""

    __pydantic_config__ = STRICT
    type: Literal["text"] = "text"
    text: str


Texts = Annotated[ListOf[Text], Field(max_length=MAX_PARTS)]


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
    """A call of a tool."""

    __pydantic_config__ = STRICT
    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: Json
    caller: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a call."""

    __pydantic_config__ = STRICT
    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: str | Texts | None = None


UserBlock = Annotated[Text | ToolResult, Field(discriminator="type")]
AssistantBlock = Annotated[
    Text | Thinking | RedactedThinking | ToolUse, Field(discriminator="type")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    """Instructions in the middle of a conversation."""

    __pydantic_config__ = STRICT
    role: Literal["system"]
    content: str | Texts


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


def to_messages(
    system: str | tuple[Text, ...] | None, messages: Iterable[Message]
) -> tuple[ChatMessage, ...]:
    """The conversation as messages for a chat template.

    Text blocks become paragraphs. Consecutive user messages are merged, since many templates
    require alternating roles. Raises `InvalidRequest` for a tool result without a matching call.
    """
    text = paragraphs(system)
    conversation = [ChatMessage(role="system", content=text)] if text else []
    for role, in_a_row in groupby(_messages(messages), key=lambda message: message.role):
        if role == "user":
            texts = "\n\n".join(message.text for message in in_a_row)
            conversation.append(ChatMessage(role="user", content=texts))
        else:
            conversation += in_a_row
    return tuple(conversation)


def _messages(messages: Iterable[Message]) -> Iterator[ChatMessage]:
    calls: set[str] = set()
    for position, message in enumerate(messages):
        match message:
            case SystemMessage():
                yield ChatMessage(role="system", content=paragraphs(message.content))
            case UserMessage():
                yield from _told(message, position, calls)
            case AssistantMessage():
                said = _said(message)
                calls |= {call["id"] for call in said.tool_calls or ()}
                yield said
            case _:
                assert_never(message)


def _told(message: UserMessage, position: int, calls: set[str]) -> Iterator[ChatMessage]:
    """Tool results first, since templates expect them right after the calls; then the text."""
    blocks = _blocks(message.content)
    results = [block for block in blocks if isinstance(block, ToolResult)]
    for result in results:
        if result.tool_use_id not in calls:
            field = f"messages[{position}].content"
            raise InvalidRequest(
                f"`{field}`: there is no `tool_use` before it with the id "
                f"{result.tool_use_id[:100]!r}",
                field=field,
            )
        text = paragraphs(result.content)
        yield ChatMessage(role="tool", content=text, tool_call_id=result.tool_use_id)
    texts = tuple(block for block in blocks if isinstance(block, Text))
    if texts or not results:
        yield ChatMessage(role="user", content=paragraphs(texts))


def _said(message: AssistantMessage) -> ChatMessage:
    blocks = _blocks(message.content)
    calls = tuple(_call(block) for block in blocks if isinstance(block, ToolUse))
    text = "".join(block.text for block in blocks if isinstance(block, Text))
    thoughts = "\n".join(block.thinking for block in blocks if isinstance(block, Thinking))
    return ChatMessage(
        role="assistant",
        content=text if text or not calls else None,
        reasoning_content=thoughts or None,
        tool_calls=calls or None,
    )


def _call(block: ToolUse) -> Json:
    function = {"name": block.name, "arguments": to_json(block.input).decode()}
    return {"id": block.id, "type": "function", "function": function}


def as_blocks(message: AssistantMessage) -> tuple[AssistantBlock, ...]:
    """The assistant's message as blocks."""
    content = message.content
    return (Text(text=content),) if isinstance(content, str) else content


def _blocks(
    content: str | tuple[UserBlock, ...] | tuple[AssistantBlock, ...],
) -> tuple[UserBlock | AssistantBlock, ...]:
    return (Text(text=content),) if isinstance(content, str) else content


def paragraphs(content: str | tuple[Text, ...] | None) -> str:
    """Joins text or text blocks into one text."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n\n".join(block.text for block in content)
