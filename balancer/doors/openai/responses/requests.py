"""The body of `/v1/responses` to a neutral request; what cannot be served is refused by name.

`null` means what leaving a field out means. These hints are taken and ignored: `IGNORED`. What
changes the answer and is not to be had is refused with the field as `param`, unless its value asks
for nothing (`"background": false`). Beyond OpenAI's there are `top_k`, `min_p`, `repeat_penalty`,
`presence_penalty`, `frequency_penalty`, `seed`, `stop` and `ignore_eos`.

A `reasoning.effort` of `none` turns reasoning off and any other one on, where the model's template
knows that; a summary is never made, since the reasoning itself is in the answer. Reasoning goes
back to the model in the clear, so `include: ["reasoning.encrypted_content"]` needs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter
from pydantic_core import to_json

from .....shared.errors import InvalidRequest
from .....shared.inference import (
    MAX_MESSAGES,
    GenerateRequest,
    MaxTokens,
    ToolChoice,
)
from .....shared.sampling import (
    MAX_STOP_STRINGS,
    MinP,
    RepeatPenalty,
    StopString,
    Temperature,
    TokenPenalty,
    TopK,
    TopP,
)
from .....shared.strict import STRICT
from .....shared.validation import parse_json
from ...given import fields_given
from .items import Item, Json, plain_items, to_messages

MAX_METADATA = 16

IGNORED = frozenset(
    {
        "max_tool_calls",  # counts calls of tools that only OpenAI has
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "stream_options",
    }
)

# Each with the values, as JSON, that are let through; but for `_SERVED` they ask for nothing.
_REFUSED: Mapping[str, frozenset[bytes]] = {
    "access_programs": frozenset(),
    "background": frozenset({b"false"}),
    "context_management": frozenset(),
    "conversation": frozenset(),
    "image": frozenset(),
    "moderation": frozenset(),
    "parallel_tool_calls": frozenset({b"true"}),
    "prompt": frozenset(),
    "tool_choice": frozenset({b'"auto"', b'"none"'}),
    "top_logprobs": frozenset({b"0"}),
    "truncation": frozenset({b'"disabled"'}),
}
_SERVED = frozenset({"tool_choice"})

_NOT_INCLUDED = frozenset({"message.output_text.logprobs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReasoningOptions:
    __pydantic_config__ = STRICT

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextFormat:
    __pydantic_config__ = STRICT

    type: Literal["text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextOptions:
    __pydantic_config__ = STRICT

    format: _TextFormat | None = None
    verbosity: Literal["medium"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FunctionTool:
    __pydantic_config__ = STRICT

    type: Literal["function"]
    name: Annotated[str, StringConstraints(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def neutral(self) -> Json:
        function: Json = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        if self.parameters is not None:
            function["parameters"] = self.parameters
        return {"type": "function", "function": function}

    def echo(self) -> Json:
        return {
            "type": self.type,
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": self.strict,
        }


Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=64)],
        Annotated[str, StringConstraints(max_length=512)],
    ],
    Field(max_length=MAX_METADATA),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    __pydantic_config__ = STRICT

    input: Annotated[tuple[Item, ...], Field(max_length=MAX_MESSAGES)] = ()
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    store: bool = True
    tools: tuple[_FunctionTool, ...] = ()
    tool_choice: ToolChoice | None = None
    text: _TextOptions | None = None
    reasoning: _ReasoningOptions | None = None
    include: tuple[str, ...] = ()
    metadata: Metadata | None = None
    user: str | None = None
    max_output_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repeat_penalty: RepeatPenalty | None = None
    presence_penalty: TokenPenalty | None = None
    frequency_penalty: TokenPenalty | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[tuple[StopString, ...], Field(max_length=MAX_STOP_STRINGS)] = ()
    ignore_eos: bool = False


_body = TypeAdapter(_Body)


class Wanted:
    """What one body asks for."""

    def __init__(self, body: _Body) -> None:
        self._body = body
        self.input = body.input
        self.previous_response_id = body.previous_response_id
        self.model = body.model
        self.stream = body.stream
        self.store = body.store

    def request(self, history: tuple[Item, ...]) -> GenerateRequest:
        """The request, with the items that came before its own. Raises `InvalidRequest`."""
        body = self._body
        messages = to_messages(body.instructions, (*history, *body.input))
        if not messages:
            raise InvalidRequest("`input` is missing", field="input")
        if len(messages) > MAX_MESSAGES:
            raise InvalidRequest(
                f"the conversation has {len(messages)} messages; at most {MAX_MESSAGES} are taken",
                field="input",
            )
        return GenerateRequest(
            messages=messages,
            model=body.model,
            stream=body.stream,
            max_tokens=body.max_output_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            min_p=body.min_p,
            repeat_penalty=body.repeat_penalty,
            presence_penalty=body.presence_penalty,
            frequency_penalty=body.frequency_penalty,
            seed=None if body.seed is None else body.seed % 2**32,
            stop=body.stop,
            ignore_eos=body.ignore_eos,
            thinking=_thinking(body.reasoning),
            tools=tuple(tool.neutral() for tool in body.tools) or None,
            tool_choice=body.tool_choice,
        )

    def echo(self, model: str) -> Json:
        """What the response repeats of its request; `model` is the one that answers."""
        body = self._body
        reasoning = body.reasoning or _ReasoningOptions()
        return {
            "model": model,
            "instructions": body.instructions,
            "previous_response_id": body.previous_response_id,
            "max_output_tokens": body.max_output_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "tools": [tool.echo() for tool in body.tools],
            "tool_choice": body.tool_choice or "auto",
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
            "truncation": "disabled",
            "metadata": body.metadata or {},
            "user": body.user,
        }


def parse_response(body: bytes) -> Wanted:
    """The body of `/v1/responses`. Raises `InvalidRequest`."""
    raw = fields_given(body, refused=_REFUSED, ignored=IGNORED, served=_SERVED)
    if "input" in raw:
        raw["input"] = plain_items(raw["input"])
    if isinstance(raw.get("stop"), str):
        raw["stop"] = [raw["stop"]]
    parsed = parse_json(_body, to_json(raw))
    for position, name in enumerate(parsed.include):
        if name in _NOT_INCLUDED:
            raise InvalidRequest(
                f"`include`: {name} is not to be had here", field=f"include[{position}]"
            )
    return Wanted(parsed)


def _thinking(options: _ReasoningOptions | None) -> bool | None:
    if options is None or options.effort is None:
        return None
    return options.effort != "none"
