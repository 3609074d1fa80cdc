"""Context edits: they omit old thinking and old tool results from a request's prompt.

An edit changes the prompt of one request only, not the conversation or the stored thread. A turn
is everything that the assistant says between two user messages that have more than tool results.
So a chain of tool calls is one turn.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from ....shared.inference import MAX_TOOLS, Count
from ....shared.strict import STRICT, ListOf
from .conversation.blocks import (
    AssistantBlock,
    AssistantMessage,
    Message,
    Thinking,
    ToolResult,
    ToolUse,
    UserBlock,
    UserMessage,
)
from .conversation.documents import Text


class ThinkingCleared(TypedDict):
    """An entry of `applied_edits`: thinking of old turns was omitted from the prompt."""

    type: Literal["clear_thinking_20251015"]
    cleared_thinking_turns: Count
    cleared_input_tokens: Count


class ToolUsesCleared(TypedDict):
    """An entry of `applied_edits`: results of old tool uses were omitted from the prompt."""

    type: Literal["clear_tool_uses_20250919"]
    cleared_tool_uses: Count
    cleared_input_tokens: Count


AppliedEdit = ThinkingCleared | ToolUsesCleared


CLEARED = "[This tool result was removed to save context.]"
"""The text in place of a cleared tool result."""

MAX_EDITS = 3
"""Maximum edits of a request, one of each kind."""

_Messages = tuple[Message, ...]
_Limit = Annotated[int, Field(ge=0, le=2**53)]
_Names = Annotated[ListOf[str], Field(max_length=MAX_TOOLS)]


@dataclass(frozen=True, slots=True)
class EditedConversation:
    """A conversation after an edit, and the number of turns or tool uses that were cleared."""

    messages: _Messages
    num_cleared: int


class Edit(ABC):
    """One edit. It applies only to prompts of more than `above` tokens."""

    __slots__ = ()

    @property
    def above(self) -> int:
        """The prompt length, in tokens, up to which the edit is not applied."""
        return -1

    @property
    def least(self) -> int:
        """The tokens that the edit must save; otherwise it is not applied."""
        return 0

    @abstractmethod
    def change(self, messages: _Messages) -> EditedConversation | None:
        """Return the edited `messages`; `None` if there is nothing to clear."""

    @abstractmethod
    def applied(self, num_cleared: int, num_tokens: int) -> AppliedEdit:
        """The entry in the answer's `applied_edits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllThinking:
    """Keeps all thinking."""

    __pydantic_config__ = STRICT
    type: Literal["all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingTurns:
    """Keeps the thinking of the last `value` turns that contain thinking."""

    __pydantic_config__ = STRICT
    type: Literal["thinking_turns"] = "thinking_turns"
    value: Annotated[int, Field(ge=1, le=2**53)]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTokens:
    """A number of tokens of the prompt."""

    __pydantic_config__ = STRICT
    type: Literal["input_tokens"] = "input_tokens"
    value: _Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUses:
    """A number of tool uses; only uses that have a result are counted."""

    __pydantic_config__ = STRICT
    type: Literal["tool_uses"] = "tool_uses"
    value: _Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearThinking(Edit):
    """Clears the thinking of all turns except the last ones."""

    __pydantic_config__ = STRICT
    type: Literal["clear_thinking_20251015"]
    keep: Literal["all"] | Annotated[AllThinking | ThinkingTurns, Field(discriminator="type")] = (
        ThinkingTurns(value=1)
    )

    def change(self, messages: _Messages) -> EditedConversation | None:
        """Return the messages without the thinking of old turns; `None` if nothing changes."""
        if not isinstance(self.keep, ThinkingTurns):
            return None
        turns = [turn for turn in _turns(messages) if any(_thinks(messages[at]) for at in turn)]
        old = turns[: max(0, len(turns) - self.keep.value)]
        if not old:
            return None
        cleared = {at for turn in old for at in turn}
        edited = (
            _without_thinking(message) if at in cleared else message
            for at, message in enumerate(messages)
        )
        return EditedConversation(tuple(edited), len(old))

    def applied(self, num_cleared: int, num_tokens: int) -> AppliedEdit:
        """The entry in the answer's `applied_edits`."""
        return {
            "type": self.type,
            "cleared_thinking_turns": num_cleared,
            "cleared_input_tokens": num_tokens,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearToolUses(Edit):
    """Clears the results of all tool uses except the last ones, and their inputs on request."""

    __pydantic_config__ = STRICT
    type: Literal["clear_tool_uses_20250919"]
    trigger: Annotated[InputTokens | ToolUses, Field(discriminator="type")] = InputTokens(
        value=100_000
    )
    keep: ToolUses = ToolUses(value=3)
    clear_at_least: InputTokens | None = None
    exclude_tools: _Names | None = None
    clear_tool_inputs: bool | _Names | None = None

    @property
    def above(self) -> int:
        """The value of `trigger`, if it counts tokens."""
        return self.trigger.value if isinstance(self.trigger, InputTokens) else -1

    @property
    def least(self) -> int:
        """The value of `clear_at_least`."""
        return self.clear_at_least.value if self.clear_at_least else 0

    def change(self, messages: _Messages) -> EditedConversation | None:
        """Return the messages without the results of old tool uses; `None` if nothing changes."""
        uses = _answered_uses(messages)
        if isinstance(self.trigger, ToolUses) and len(uses) <= self.trigger.value:
            return None
        excluded = frozenset(self.exclude_tools or ())
        old = uses[: max(0, len(uses) - self.keep.value)]
        results = {use.id for use in old if use.name not in excluded}
        if not results:
            return None
        inputs = {use.id for use in old if use.id in results and self._clears_input_of(use.name)}
        edited = (_without_results(message, results, inputs) for message in messages)
        return EditedConversation(tuple(edited), len(results))

    def _clears_input_of(self, tool: str) -> bool:
        cleared = self.clear_tool_inputs
        return cleared if isinstance(cleared, bool) else tool in (cleared or ())

    def applied(self, num_cleared: int, num_tokens: int) -> AppliedEdit:
        """The entry in the answer's `applied_edits`."""
        return {
            "type": self.type,
            "cleared_tool_uses": num_cleared,
            "cleared_input_tokens": num_tokens,
        }


AnyEdit = Annotated[ClearThinking | ClearToolUses, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextManagement:
    """The edits that a request asks for, in order."""

    __pydantic_config__ = STRICT
    edits: Annotated[ListOf[AnyEdit], Field(max_length=MAX_EDITS)] = ()


# ---- conversations


def _turns(messages: _Messages) -> Iterator[list[int]]:
    """Yield for each turn the positions of its assistant messages."""
    turn: list[int] = []
    for at, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            turn.append(at)
        elif isinstance(message, UserMessage) and not _is_only_results(message) and turn:
            yield turn
            turn = []
    if turn:
        yield turn


def _is_only_results(message: UserMessage) -> bool:
    blocks = message.content
    return not isinstance(blocks, str) and all(isinstance(block, ToolResult) for block in blocks)


_Block = TypeVar("_Block")


def _of_type(message: Message, kind: type[_Block]) -> list[_Block]:
    blocks = () if isinstance(message.content, str) else message.content
    return [block for block in blocks if isinstance(block, kind)]


def _thinks(message: Message) -> bool:
    return bool(_of_type(message, Thinking))


def _without_thinking(message: Message) -> Message:
    if not isinstance(message, AssistantMessage) or isinstance(message.content, str):
        return message
    left = tuple(block for block in message.content if not isinstance(block, Thinking))
    return replace(message, content=left or (Text(text=""),))


def _answered_uses(messages: _Messages) -> list[ToolUse]:
    results = {
        result.tool_use_id for message in messages for result in _of_type(message, ToolResult)
    }
    uses = {use.id: use for message in messages for use in _of_type(message, ToolUse)}
    return [use for use in uses.values() if use.id in results]


def _without_results(message: Message, results: set[str], inputs: set[str]) -> Message:
    match message:
        case UserMessage(content=tuple(blocks)):
            return replace(
                message, content=tuple(_without_result(block, results) for block in blocks)
            )
        case AssistantMessage(content=tuple(said)):
            return replace(message, content=tuple(_called(block, inputs) for block in said))
        case _:
            return message


def _without_result(block: UserBlock, results: set[str]) -> UserBlock:
    if isinstance(block, ToolResult) and block.tool_use_id in results:
        return replace(block, content=CLEARED)
    return block


def _called(block: AssistantBlock, inputs: set[str]) -> AssistantBlock:
    if isinstance(block, ToolUse) and block.id in inputs:
        return replace(block, input={})
    return block
