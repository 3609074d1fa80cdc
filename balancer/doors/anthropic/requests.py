"""The body of `/v1/messages` to a neutral request; what cannot be served is refused by name.

`null` means what leaving a field out means. These hints are taken and ignored: `IGNORED`. As at
Anthropic's, a model thinks only if it is asked to, where its template can be told so; `adaptive`
leaves that to the template. `budget_tokens` is taken and bounds nothing: thinking counts against
`max_tokens` like everything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter
from pydantic_core import to_json

from ....shared.errors import InvalidRequest
from ....shared.inference import MAX_MESSAGES, GenerateRequest, MaxTokens, ToolChoice
from ....shared.sampling import StopStrings, Temperature, TopK, TopP
from ....shared.strict import STRICT
from ....shared.validation import parse_json
from ..given import fields_given
from .blocks import AssistantMessage, Json, Message, Text, to_messages

IGNORED = frozenset(
    {"cache_control", "diagnostics", "inference_geo", "metadata", "service_tier", "speed"}
    | {"user_profile_id", "workspace_id"}
)

_REFUSED: Mapping[str, frozenset[bytes]] = {
    "container": frozenset(),
    "context_management": frozenset(),
    "mcp_servers": frozenset(),
    "output_config": frozenset({b"{}"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    __pydantic_config__ = STRICT

    type: Literal["custom"] | None = None
    name: Annotated[str, StringConstraints(min_length=1)]
    description: str | None = None
    input_schema: Json
    strict: bool | None = None
    cache_control: Json | None = None
    eager_input_streaming: bool | None = None
    input_examples: list[Any] | None = None

    def neutral(self) -> Json:
        function: Json = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": function | {"parameters": self.input_schema}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    __pydantic_config__ = STRICT

    type: Literal["auto", "none"]
    disable_parallel_tool_use: Literal[False] | None = None

    def neutral(self) -> ToolChoice:
        return self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class _ThinkingOptions:
    __pydantic_config__ = STRICT

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None
    display: Literal["summarized", "omitted"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    __pydantic_config__ = STRICT

    model: str | None = None
    max_tokens: MaxTokens
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | tuple[Text, ...] | None = None
    stream: bool = False
    stop_sequences: StopStrings = ()
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    thinking: _ThinkingOptions | None = None
    tools: tuple[_Tool, ...] = ()
    tool_choice: _Choice | None = None


_body = TypeAdapter(_Body)


def parse_messages(body: bytes) -> GenerateRequest:
    """The body of `/v1/messages`. Raises `InvalidRequest`."""
    raw = fields_given(body, refused=_REFUSED, ignored=IGNORED)
    parsed = parse_json(_body, to_json(raw))
    if isinstance(parsed.messages[-1], AssistantMessage):
        raise InvalidRequest(
            "`messages`: the last one must be the user's; to go on from the beginning of an "
            "answer is not supported",
            field="messages",
        )
    messages = to_messages(parsed.system, parsed.messages)
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest(
            f"`messages`: with each tool's result they are {len(messages)}; at most "
            f"{MAX_MESSAGES} are taken",
            field="messages",
        )
    return GenerateRequest(
        messages=messages,
        model=parsed.model,
        stream=parsed.stream,
        max_tokens=parsed.max_tokens,
        stop=parsed.stop_sequences,
        temperature=parsed.temperature,
        top_p=parsed.top_p,
        top_k=parsed.top_k,
        thinking=_thinking(parsed.thinking),
        tools=tuple(tool.neutral() for tool in parsed.tools) or None,
        tool_choice=parsed.tool_choice.neutral() if parsed.tool_choice else None,
    )


def _thinking(options: _ThinkingOptions | None) -> bool | None:
    if options is None:
        return False
    return {"enabled": True, "disabled": False, "adaptive": None}[options.type]
