"""Converts the body of `/v1/messages` to a neutral request.

The types here define the supported fields; `fields` lists those that are ignored and reported, or
refused by name. `null` is the same as an absent field. As in Anthropic's API, thinking is off
unless requested, if the template can switch it; `adaptive` leaves it to the template.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter
from pydantic_core import to_json

from ....shared.errors import InvalidRequest
from ....shared.inference import (
    MAX_MESSAGES,
    MAX_TOOLS,
    TO_GO_ON,
    GenerateRequest,
    Grammar,
    JsonSchemaGrammar,
    MaxTokens,
    NamedTool,
    ToolChoice,
    can_go_on,
)
from ....shared.sampling import StopStrings, Temperature, TopK, TopP
from ....shared.strict import STRICT, ListOf
from ....shared.validation import parse_json
from ..common.field_names import FieldNames
from ..common.readable import check_readable
from ..fields.field_notes import FieldNotes
from ..fields.field_table import FieldTable
from ..openapi.bodies import Body
from .blocks import AssistantMessage, Json, Message, Text, Texts, to_messages
from .context_edits import ContextManagement
from .fields import MESSAGES

FIELD_NAMES = FieldNames(
    {
        "tools[].function.parameters": "tools[].input_schema",
        "grammar": "output_config.format",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    }
)
"""Neutral field names mapped to the names in this API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    __pydantic_config__ = STRICT

    type: Literal["custom"] | None = None
    name: Annotated[str, StringConstraints(min_length=1)]
    description: str | None = None
    input_schema: Json
    strict: bool | None = None

    def neutral(self) -> Json:
        function: Json = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = self.input_schema
        if self.strict:
            function["strict"] = True
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    __pydantic_config__ = STRICT

    type: Literal["auto", "any", "none"] = "auto"
    disable_parallel_tool_use: bool | None = None

    def neutral(self) -> ToolChoice:
        return "required" if self.type == "any" else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedChoice:
    __pydantic_config__ = STRICT

    type: Literal["tool"]
    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    disable_parallel_tool_use: bool | None = None

    def neutral(self) -> ToolChoice:
        return NamedTool(name=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    __pydantic_config__ = STRICT

    type: Literal["json_schema"]
    schema: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputOptions:
    __pydantic_config__ = STRICT

    format: _Format | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ThinkingOptions:
    __pydantic_config__ = STRICT

    type: Literal["enabled", "disabled", "adaptive"]
    display: Literal["summarized", "omitted"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateThread:
    """The conversation is stored under the id of the answer."""

    __pydantic_config__ = STRICT

    type: Literal["create"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueThread:
    """The messages follow those of a stored thread, whose `system` and `tools` stay in force."""

    __pydantic_config__ = STRICT

    type: Literal["continue"]
    previous_message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What an answer follows from: instructions, tools and messages."""

    system: str | tuple[Text, ...] | None
    tools: tuple[_Tool, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    __pydantic_config__ = STRICT

    model: str | None = None
    max_tokens: MaxTokens | None = None
    messages: Annotated[ListOf[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | Texts | None = None
    stream: bool = False
    stop_sequences: StopStrings = ()
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    thinking: _ThinkingOptions | None = None
    tools: Annotated[ListOf[_Tool], Field(max_length=MAX_TOOLS)] = ()
    tool_choice: Annotated[_Choice | _NamedChoice, Field(discriminator="type")] = _Choice()
    output_config: _OutputOptions = _OutputOptions()
    context_management: ContextManagement | None = None
    thread: Annotated[CreateThread | ContinueThread, Field(discriminator="type")] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessagesBody(_Body):
    max_tokens: MaxTokens


_messages_body = TypeAdapter(_MessagesBody)
_count_body = TypeAdapter(_Body)

MESSAGES_FIELDS = FieldTable(_messages_body, MESSAGES)
COUNT_FIELDS = FieldTable(_count_body, MESSAGES)


class Wanted:
    """A parsed body."""

    def __init__(self, body: _Body, num_bytes: int) -> None:
        """`num_bytes` is the body's length."""
        self._body = body
        self.num_bytes = num_bytes
        self.model = body.model
        self.stream = body.stream
        self.max_tokens = body.max_tokens
        self.context_management = body.context_management
        self.thread = body.thread
        self.edits = () if body.context_management is None else body.context_management.edits

    def conversation(self, previous: Conversation | None = None) -> Conversation:
        """The whole conversation; `previous` is the thread that the body continues.

        Raises `InvalidRequest`.
        """
        body = self._body
        own = Conversation(system=body.system, tools=body.tools, messages=body.messages)
        if previous is None:
            return own
        _check_same("system", own.system or previous.system, previous.system)
        _check_same("tools", own.tools or previous.tools, previous.tools)
        return replace(previous, messages=(*previous.messages, *own.messages))

    def request(self, conversation: Conversation | None = None) -> GenerateRequest:
        """The neutral request for `conversation`, or for the body's own conversation.

        Raises `InvalidRequest` and `RequestTooLarge`.
        """
        return _neutral(self._body, self.conversation() if conversation is None else conversation)


def _check_same(field: str, given: object, stored: object) -> None:
    if given != stored:
        raise InvalidRequest(
            f"`{field}` must be left out, or be the same as in the thread that is continued",
            field=field,
        )


def _described(name: str, adapter: TypeAdapter[Any], table: FieldTable) -> Body:
    return Body(
        name=name,
        adapter=adapter,
        ignored=table.ignored,
        refused=table.refused,
        takes_unknown=True,
    )


MESSAGES_BODY = _described("MessagesBody", _messages_body, MESSAGES_FIELDS)
COUNT_BODY = _described("CountMessagesBody", _count_body, COUNT_FIELDS)


def parse_messages(body: bytes, notes: FieldNotes | None = None) -> Wanted:
    """The body of `/v1/messages`. Raises `InvalidRequest`."""
    given = to_json(MESSAGES_FIELDS.given(body, notes))
    return Wanted(_checked(parse_json(_messages_body, given)), len(body))


def parse_count(body: bytes, notes: FieldNotes | None = None) -> Wanted:
    """The body of `/v1/messages/count_tokens`: the same, but `max_tokens` is optional."""
    given = to_json(COUNT_FIELDS.given(body, notes))
    return Wanted(_checked(parse_json(_count_body, given)), len(body))


def _checked(body: _Body) -> _Body:
    """Raises `InvalidRequest` for fields that contradict each other."""
    if body.context_management is not None:
        kinds = [edit.type for edit in body.context_management.edits]
        if len(set(kinds)) < len(kinds):
            field = "context_management.edits"
            raise InvalidRequest(f"`{field}` may have each type once", field=field)
    return body


def _neutral(parsed: _Body, conversation: Conversation) -> GenerateRequest:
    if parsed.tool_choice.type in ("any", "tool") and not conversation.tools:
        raise InvalidRequest("`tool_choice` needs `tools`", field="tool_choice")
    messages = to_messages(conversation.system, conversation.messages)
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest(
            f"`messages`: there are {len(messages)}, each tool result counted as one; at most "
            f"{MAX_MESSAGES} are allowed",
            field="messages",
        )
    is_begun = isinstance(conversation.messages[-1], AssistantMessage)
    if is_begun and not can_go_on(messages):
        raise InvalidRequest(f"to continue an answer, the request {TO_GO_ON}", field="messages")
    request = GenerateRequest(
        messages=messages,
        model=parsed.model,
        stream=parsed.stream,
        max_tokens=parsed.max_tokens,
        stop=parsed.stop_sequences,
        temperature=parsed.temperature,
        top_p=parsed.top_p,
        top_k=parsed.top_k,
        thinking=_thinking(parsed.thinking),
        tools=tuple(tool.neutral() for tool in conversation.tools) or None,
        tool_choice=parsed.tool_choice.neutral() if conversation.tools else None,
        parallel_tool_calls=not parsed.tool_choice.disable_parallel_tool_use,
        grammar=_grammar(parsed.output_config),
        chat_template_kwargs=_variables(parsed.output_config),
        continue_final_message=is_begun,
    )
    check_readable(request)
    return request


def _grammar(options: _OutputOptions) -> Grammar | None:
    if options.format is None:
        return None
    return JsonSchemaGrammar(type="json_schema", schema=options.format.schema)


def _variables(options: _OutputOptions) -> Json | None:
    """Some templates know degrees of effort, by OpenAI's name for them."""
    return None if options.effort is None else {"reasoning_effort": options.effort}


def _thinking(options: _ThinkingOptions | None) -> bool | None:
    if options is None:
        return False
    return {"enabled": True, "disabled": False, "adaptive": None}[options.type]
