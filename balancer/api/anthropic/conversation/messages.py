"""Converts a conversation of blocks to neutral messages for a chat template."""

from collections.abc import Iterator
from itertools import groupby
from typing import TypeGuard, assert_never

from .....shared.errors import InvalidRequest
from .....shared.inference import ChatMessage, ImagePart, arguments_text
from .blocks import (
    AnyBlock,
    AssistantMessage,
    Compaction,
    Json,
    Message,
    SystemMessage,
    Thinking,
    ToolResult,
    ToolUse,
    UserMessage,
    as_blocks,
    blocks_of,
)
from .compaction import from_summary, summary_of
from .documents import Document, Image, Readable, SearchResult, Text, joined, paragraphs


def to_messages(
    system: str | tuple[Text, ...] | None, messages: tuple[Message, ...]
) -> tuple[ChatMessage, ...]:
    """Return the conversation from its last summary on, as messages for a chat template.

    Text blocks become paragraphs. Consecutive user messages are merged, because many templates
    require alternating roles. Raises `InvalidRequest` for a tool result without a matching call.
    """
    text = paragraphs(system)
    conversation = [ChatMessage(role="system", content=text)] if text else []
    turns = _messages(from_summary(messages), len(messages))
    for role, in_a_row in groupby(turns, key=lambda message: message.role):
        if role == "user":
            content = joined(message.content or "" for message in in_a_row)
            conversation.append(ChatMessage(role="user", content=content))
        else:
            conversation += in_a_row
    return tuple(conversation)


def _messages(messages: tuple[Message, ...], num_given: int) -> Iterator[ChatMessage]:
    calls: set[str] = set()
    first = num_given - len(messages)
    last_user = max((at for at, each in enumerate(messages) if each.role == "user"), default=-1)
    for at, message in enumerate(messages):
        match message:
            case SystemMessage():
                if not (message.clear_at == "next_user_message" and at < last_user):
                    yield from _instructed(message)
            case UserMessage():
                yield from _user_turn(message, first + at, calls)
            case AssistantMessage():
                for said in _said(message):
                    calls |= {call["id"] for call in said.tool_calls or ()}
                    yield said
            case _:
                assert_never(message)


def _instructed(message: SystemMessage) -> Iterator[ChatMessage]:
    """Yield the instructions of a message; none if the message only changes tools."""
    blocks = blocks_of(message)
    if text := paragraphs(block for block in blocks if isinstance(block, Text)):
        yield ChatMessage(role="system", content=text)


def _user_turn(message: UserMessage, position: int, calls: set[str]) -> Iterator[ChatMessage]:
    """Yield the tool results, which templates expect right after the calls, and then the text."""
    blocks = blocks_of(message)
    results = [block for block in blocks if isinstance(block, ToolResult)]
    for result in results:
        if result.tool_use_id not in calls:
            field = f"messages[{position}].content"
            raise InvalidRequest(
                f"`{field}`: no earlier `tool_use` has the id {result.tool_use_id[:100]!r}",
                field=field,
            )
        content = result.content or ""
        text = content if isinstance(content, str) else joined(map(_shown, content))
        yield ChatMessage(role="tool", content=text, tool_call_id=result.tool_use_id)
    read = [_read(block) for block in blocks if _is_read(block)]
    if read or not blocks:
        yield ChatMessage(role="user", content=joined(read))


_Read = Text | Image | Document | SearchResult | Compaction


def _is_read(block: AnyBlock) -> TypeGuard[_Read]:
    if isinstance(block, Compaction):
        return bool(block.content)
    return isinstance(block, _Read)


def _read(block: _Read) -> str | ImagePart:
    return summary_of(block) if isinstance(block, Compaction) else _shown(block)


def _shown(block: Image | Readable) -> str | ImagePart:
    return block.part if isinstance(block, Image) else block.read


def _said(message: AssistantMessage) -> Iterator[ChatMessage]:
    """Yield the assistant's message.

    A summary becomes a user message, so that the conversation begins with one.
    """
    blocks = as_blocks(message)
    summaries = [summary_of(block) for block in blocks if isinstance(block, Compaction)]
    if summary := "\n\n".join(filter(None, summaries)):
        yield ChatMessage(role="user", content=summary)
    if len(summaries) == len(blocks) > 0:
        return
    calls = tuple(_call(block) for block in blocks if isinstance(block, ToolUse))
    text = "".join(block.text for block in blocks if isinstance(block, Text))
    thoughts = "\n".join(block.thinking for block in blocks if isinstance(block, Thinking))
    yield ChatMessage(
        role="assistant",
        content=text if text or not calls else None,
        reasoning_content=thoughts or None,
        tool_calls=calls or None,
    )


def _call(block: ToolUse) -> Json:
    function = {"name": block.name, "arguments": arguments_text(block.input)}
    return {"id": block.id, "type": "function", "function": function}
