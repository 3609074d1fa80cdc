"""Compaction: a summary that replaces a conversation.

A request with `compaction` asks for the summary. Later requests contain the summary, and their
prompts omit all messages before it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from .....shared.strict import LAZY, STRICT
from .blocks import Changes, Compaction, Json, Message, UserMessage, blocks_of
from .tools import ToolAddition, ToolRemoval

_changes: TypeAdapter[tuple[ToolAddition | ToolRemoval, ...]] = TypeAdapter(Changes, config=LAZY)

INSTRUCTIONS = (
    "Summarize this conversation for whoever goes on with it without having read it. State what "
    "the user wants, what was done and decided, what was found out (names, paths, numbers and "
    "short quotations where they matter), what failed, and what is still to be done. Answer with "
    "the summary alone."
)
"""Instructions for the summary, if the request has none of its own."""

HEADING = "This is a summary of the conversation so far:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarize:
    """A request for a summary of the conversation; the answer is one compaction block."""

    __pydantic_config__ = STRICT
    type: Literal["summarize"]
    instructions: str | None = None

    def asked(self) -> UserMessage:
        """Return the message that asks the model for the summary."""
        own = self.instructions
        return UserMessage(role="user", content=own if own and own.strip() else INSTRUCTIONS)


def from_summary(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the conversation from its last summary on; without a summary, all of it."""
    for at in reversed(range(len(messages))):
        message = messages[at]
        blocks = blocks_of(message)
        for place in reversed(range(len(blocks))):
            block = blocks[place]
            if isinstance(block, Compaction) and block.content:
                begun = replace(message, content=blocks[place:])  # type: ignore[arg-type]
                return (begun, *messages[at + 1 :])
    return messages


def summary_of(block: Compaction) -> str:
    """Return the text of a summary; empty if the summary has no text."""
    return f"{HEADING}\n\n{block.content}" if block.content else ""


def summarized(messages: Iterable[Message]) -> list[Json]:
    """Return the changes of tools in `messages`, in the form that a summary stores."""
    changes: list[Json] = _changes.dump_python(
        tuple(changes_in(messages)), mode="json", exclude_none=True
    )
    return changes


def changes_in(messages: Iterable[Message]) -> Iterator[ToolAddition | ToolRemoval]:
    """Yield all changes of tools in `messages`, in order, including those in summaries."""
    for message in messages:
        if isinstance(message.content, str):
            continue
        for block in message.content:
            if isinstance(block, ToolAddition | ToolRemoval):
                yield block
            elif isinstance(block, Compaction):
                yield from block.tool_changes or ()
