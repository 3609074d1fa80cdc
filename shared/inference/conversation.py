"""A conversation as chat templates expect it: messages, and the tools that the model may call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from ..strict import STRICT, ListOf

Role = Literal["system", "developer", "user", "assistant", "tool"]

MAX_MESSAGES = 4096
MAX_PARTS = 4096
"""Most parts of one message, and most calls."""
MAX_TOOLS = 1024


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
