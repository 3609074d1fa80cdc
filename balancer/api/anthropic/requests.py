"""Converts the body of `/v1/messages` to a neutral request.

The types here define the supported fields. `fields` lists fields that are ignored and reported, or
refused by name. `null` is the same as an absent field. As in Anthropic's API, thinking is off
unless requested, if the template can switch it. With `adaptive` the template decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from ....shared.errors import InvalidRequest
from ....shared.inference import (
    MAX_MESSAGES,
    MAX_TOOLS,
    TO_GO_ON,
    ChatMessage,
    GenerateRequest,
    can_go_on,
)
from ....shared.sampling import AnyStopStrings, Temperature, TopK, TopP
from ....shared.strict import STRICT, ListOf
from ..common.body_fields import FieldNames
from ..common.request_checks import check_readable
from ..fields.field_table import FieldNotes, FieldTable
from .context_edits import ContextManagement
from .conversation.blocks import Json, Message
from .conversation.compaction import Summarize, changes_in, from_summary
from .conversation.documents import Text, Texts, check_documents
from .conversation.messages import to_messages
from .conversation.tools import (
    AnyChoice,
    ClientTool,
    CustomTool,
    NamedChoice,
    Tool,
    ToolUseChoice,
    with_changes,
    with_type,
)
from .fields import MESSAGES
from .options import Format, OutputOptions, ThinkingOptions, Tier, grammar, priority_of, thinks

_MaxTokens = Annotated[int, Field(ge=0, lt=2**31)]
"""With 0 the prompt is computed for later requests, and nothing is generated."""

_NO_CHOICE = ToolUseChoice()
_NO_OPTIONS = OutputOptions()

FIELD_NAMES = FieldNames(
    {
        "tools[].function.parameters": "tools[].input_schema",
        "grammar": "output_config.format",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    }
)
"""Neutral field names mapped to the names in this API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateThread:
    """An option: store the conversation under the id of the answer."""

    __pydantic_config__ = STRICT

    type: Literal["create"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueThread:
    """An option: the messages continue a stored thread, and its `system` and `tools` apply."""

    __pydantic_config__ = STRICT

    type: Literal["continue"]
    previous_message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesInput:
    """The input of an answer: instructions, tools and messages."""

    system: str | tuple[Text, ...] | None
    tools: tuple[CustomTool | ClientTool, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CreateMessageBody:
    __pydantic_config__ = STRICT

    model: str | None = None
    max_tokens: _MaxTokens | None = None
    messages: Annotated[ListOf[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | Texts | None = None
    stream: bool = False
    stop_sequences: AnyStopStrings = ()
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    thinking: ThinkingOptions | None = None
    tools: Annotated[ListOf[Tool], Field(max_length=MAX_TOOLS)] = ()
    tool_choice: AnyChoice = _NO_CHOICE
    output_config: OutputOptions = _NO_OPTIONS
    output_format: Format | None = None
    compaction: Summarize | None = None
    context_management: ContextManagement | None = None
    service_tier: Tier = "auto"
    thread: Annotated[CreateThread | ContinueThread, Field(discriminator="type")] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessagesBody(_CreateMessageBody):
    max_tokens: _MaxTokens


MESSAGES_FIELDS = FieldTable(TypeAdapter(_MessagesBody), MESSAGES)
COUNT_FIELDS = FieldTable(TypeAdapter(_CreateMessageBody), MESSAGES)


class MessagesRequest:
    """A parsed body of `/v1/messages`."""

    def __init__(self, body: _CreateMessageBody, num_bytes: int) -> None:
        """Parse a body. `num_bytes` is the body's length."""
        self._body = body
        self.num_bytes = num_bytes
        self.model = body.model
        self.stream = body.stream
        self.max_tokens = body.max_tokens
        self.context_management = body.context_management
        self.thread = body.thread
        self.is_compaction = body.compaction is not None
        self.hides_thinking = body.thinking is not None and body.thinking.is_hidden
        self.edits = () if body.context_management is None else body.context_management.edits

    def conversation(self, previous: MessagesInput | None = None) -> MessagesInput:
        """Return the whole conversation; `previous` is the thread that the body continues.

        Raises `InvalidRequest`.
        """
        body = self._body
        own = MessagesInput(system=body.system, tools=body.tools, messages=body.messages)
        if previous is None:
            return own
        _check_same("system", own.system or previous.system, previous.system)
        _check_same("tools", own.tools or previous.tools, previous.tools)
        return replace(previous, messages=(*previous.messages, *own.messages))

    def request(self, conversation: MessagesInput | None = None) -> GenerateRequest:
        """Return the neutral request for `conversation`, or for the messages of the body alone.

        Raises `InvalidRequest` and `RequestTooLarge`.
        """
        return _neutral(self._body, self.conversation() if conversation is None else conversation)


def _check_same(field: str, given: object, stored: object) -> None:
    if given != stored:
        raise InvalidRequest(
            f"`{field}` must be left out, or have the same value as in the thread that "
            "this request continues",
            field=field,
        )


def parse_messages(body: bytes, notes: FieldNotes | None = None) -> MessagesRequest:
    """Parse the body of `/v1/messages`. Raises `InvalidRequest`."""
    parsed = MESSAGES_FIELDS.parsed(body, notes, prepare=_with_types)
    return MessagesRequest(_checked(parsed), len(body))


def parse_count(body: bytes, notes: FieldNotes | None = None) -> MessagesRequest:
    """Parse the body of `/v1/messages/count_tokens`, in which `max_tokens` is optional.

    As in Anthropic's API, the tokens of a conversation to be summarised are counted without a
    summary.
    """
    parsed = _checked(COUNT_FIELDS.parsed(body, notes, prepare=_with_types))
    return MessagesRequest(replace(parsed, compaction=None), len(body))


def _with_types(body: Json) -> Json:
    """Return the body with the `type` of all its tools written out. Refuses PDFs."""
    if isinstance(tools := body.get("tools"), list):
        body["tools"] = [with_type(tool) for tool in tools]
    for place, message in enumerate(_objects(body.get("messages"))):
        check_documents(message.get("content"), f"messages[{place}].content")
        for block in _objects(message.get("content")):
            for change in (block, *_objects(block.get("tool_changes"))):
                tool = change.get("tool")
                if isinstance(tool, dict) and "definition" in tool:
                    tool["definition"] = with_type(tool["definition"])
    return body


def _objects(value: object) -> Iterator[Json]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def _checked(body: _CreateMessageBody) -> _CreateMessageBody:
    """Return the body if its fields do not contradict each other. Raises `InvalidRequest`."""
    if body.context_management is not None:
        kinds = [edit.type for edit in body.context_management.edits]
        if len(set(kinds)) < len(kinds):
            field = "context_management.edits"
            raise InvalidRequest(f"`{field}` may have each type only once", field=field)
    return body


def _neutral(parsed: _CreateMessageBody, conversation: MessagesInput) -> GenerateRequest:
    if parsed.compaction is not None:
        parsed, conversation = _to_summarize(parsed, parsed.compaction, conversation)
    messages = _messages(conversation)
    request = GenerateRequest(
        messages=messages,
        model=parsed.model,
        stream=parsed.stream,
        max_tokens=parsed.max_tokens or None,
        prefill_only=parsed.max_tokens == 0,
        stop=parsed.stop_sequences,
        temperature=parsed.temperature,
        top_p=parsed.top_p,
        top_k=parsed.top_k,
        thinking=thinks(parsed.thinking, messages),
        grammar=grammar(parsed.output_config, parsed.output_format),
        chat_template_kwargs=parsed.output_config.variables(),
        continue_final_message=messages[-1].role == "assistant",
        priority=priority_of(parsed.service_tier),
        **_calling(parsed.tool_choice, conversation),
    )
    check_readable(request)
    return request


def _messages(conversation: MessagesInput) -> tuple[ChatMessage, ...]:
    messages = to_messages(conversation.system, conversation.messages)
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest(
            f"`messages`: there are {len(messages)}, each tool result counted as one; at most "
            f"{MAX_MESSAGES} are allowed",
            field="messages",
        )
    if not messages:
        raise InvalidRequest(
            "`messages` must contain a message that is not empty", field="messages"
        )
    if messages[-1].role == "assistant" and not can_go_on(messages):
        raise InvalidRequest(f"to continue an answer, the request {TO_GO_ON}", field="messages")
    return messages


def _calling(choice: ToolUseChoice | NamedChoice, conversation: MessagesInput) -> dict[str, Any]:
    """Return the neutral fields about tools."""
    tools = with_changes(conversation.tools, changes_in(from_summary(conversation.messages)))
    if choice.type in ("any", "tool") and not tools:
        raise InvalidRequest(
            "`tool_choice` needs `tools` that the model can call", field="tool_choice"
        )
    disabled = choice.disable_parallel_tool_use
    return {
        "tools": tuple(tool.neutral() for tool in tools) or None,
        "tool_choice": choice.neutral() if tools else None,
        "parallel_tool_calls": None if disabled is None else not disabled,
    }


def _to_summarize(
    body: _CreateMessageBody, summarize: Summarize, conversation: MessagesInput
) -> tuple[_CreateMessageBody, MessagesInput]:
    """Return the body and conversation for a summary: without tools and thinking."""
    for field in ("context_management", "stop_sequences", "output_format"):
        if getattr(body, field):
            raise _beside_compaction(field)
    if body.output_config.format is not None:
        raise _beside_compaction("output_config.format")
    if body.tool_choice.type in ("any", "tool"):
        raise _beside_compaction("tool_choice")
    messages = (*conversation.messages, summarize.asked())
    return (
        replace(body, thinking=None, tool_choice=_NO_CHOICE),
        replace(conversation, messages=messages, tools=()),
    )


def _beside_compaction(field: str) -> InvalidRequest:
    return InvalidRequest(f"`{field}` cannot be combined with `compaction`", field=field)
