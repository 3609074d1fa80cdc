"""Converts the body of `/v1/responses` to a neutral request.

The types here define the supported fields. `fields` lists fields that are ignored and reported, or
refused with the field as `param`. `null` is the same as an absent field. Extensions are `seed`,
`stop`, `ignore_eos`, llama.cpp's samplers, such as `top_k`, and vLLM's constraints, such as
`guided_json` and `structured_outputs`.

A `reasoning.effort` of `none` turns reasoning off and any other effort turns it on, if the model's
template can switch it. There is never a summary, since the answer has the reasoning itself.
Reasoning goes back to the model unencrypted, so `include: ["reasoning.encrypted_content"]` has no
effect.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter
from pydantic_core import from_json, to_json

from .....shared.errors import InvalidRequest
from .....shared.inference import (
    MAX_MESSAGES,
    MAX_TOOLS,
    GenerateRequest,
    Grammar,
    JsonSchemaGrammar,
    MaxTokens,
    NamedTool,
    PromptCacheKey,
    ServiceTier,
    ToolChoice,
    TopLogprobs,
    UsedTier,
    priority_of_tier,
)
from .....shared.sampling import DEFAULT_TEMPERATURE, DEFAULT_TOP_P
from .....shared.strict import STRICT, ListOf, at_most
from .....shared.validation import parse_json
from ...common.body_fields import FieldNames
from ...common.request_checks import check_readable
from ...fields.field_table import FieldNotes, FieldTable
from ..completions.extras import Guided, neutral_seed, plain_extras, the_only
from ..completions.formats import AllowedTools, JsonObjectFormat, TextFormat, qualified
from ..completions.reasoning import Effort, Verbosity, reasoning_fields
from .answer_types import ResponseEcho, TextEcho
from .fields import BODY
from .items import GivenItem, Item, ItemReference, Json, plain_items, to_messages
from .tools import Name, Tool, functions, namespaces

MAX_METADATA = 16
MAX_INCLUDED = 64

_NAMES = {
    "messages": "input",
    "tools[].function.parameters": "tools[].parameters",
    "max_tokens": "max_output_tokens",
}
FIELD_NAMES = FieldNames({**_NAMES, "grammar": "text.format"})
"""Neutral field names mapped to the names in this API."""

_LOG_PROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReasoningOptions:
    __pydantic_config__ = STRICT

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SchemaFormat:
    """A JSON schema. If `strict` is false, parts that cannot be enforced are checked,
    not refused.
    """

    __pydantic_config__ = STRICT

    type: Literal["json_schema"]
    name: str
    schema: Json
    description: str | None = None
    strict: bool | None = None

    def grammar(self) -> JsonSchemaGrammar:
        strict = self.strict is not False
        return JsonSchemaGrammar(type="json_schema", schema=self.schema, strict=strict)


_Format = Annotated[TextFormat | JsonObjectFormat | _SchemaFormat, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextOptions:
    __pydantic_config__ = STRICT

    format: _Format | None = None
    verbosity: Verbosity | None = None

    @property
    def format_or_text(self) -> _Format:
        return self.format or TextFormat(type="text")

    def echo(self) -> TextEcho:
        format = {
            name: value for name, value in asdict(self.format_or_text).items() if value is not None
        }
        if self.verbosity is None:
            return {"format": format}
        return {"format": format, "verbosity": self.verbosity}


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedFunction:
    __pydantic_config__ = STRICT

    type: Literal["function"]
    name: Name
    namespace: Name | None = None

    def echo(self) -> Json:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllowedTools(AllowedTools):
    __pydantic_config__ = STRICT

    type: Literal["allowed_tools"]

    def echo(self) -> Json:
        return {"type": self.type, "mode": self.mode, "tools": list(self.tools)}


_ToolChoice = (
    Literal["auto", "none", "required"]
    | Annotated[_NamedFunction | _AllowedTools, Field(discriminator="type")]
)


# Most of them belong to tools that only OpenAI has, and to input that is refused.
_Included = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]

Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=64)],
        Annotated[str, StringConstraints(max_length=512)],
    ],
    Field(max_length=MAX_METADATA),
    at_most(MAX_METADATA),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConversationId:
    __pydantic_config__ = STRICT

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResponsesBody(Guided):
    __pydantic_config__ = STRICT

    input: Annotated[ListOf[GivenItem], Field(max_length=MAX_MESSAGES)] = ()
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | _ConversationId | None = None
    stream: bool = False
    store: bool = True
    background: bool = False
    tools: Annotated[ListOf[Tool], Field(max_length=MAX_TOOLS)] = ()
    tool_choice: _ToolChoice = "auto"
    parallel_tool_calls: bool | None = None
    text: _TextOptions = _TextOptions()
    reasoning: _ReasoningOptions = _ReasoningOptions()
    include: Annotated[ListOf[_Included], Field(max_length=MAX_INCLUDED)] = ()
    top_logprobs: TopLogprobs = 0
    metadata: Metadata | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: PromptCacheKey | None = None
    user: str | None = None
    safety_identifier: str | None = None
    max_output_tokens: MaxTokens | Literal[-1] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None

    def constraints(self) -> list[tuple[str, Grammar]]:
        """Return the grammars of the answer by their fields. Raises `InvalidRequest`."""
        grammar = self.text.format_or_text.grammar()
        found = [] if grammar is None else [("text.format", grammar)]
        return [*found, *self.grammars()]


_body = TypeAdapter(_ResponsesBody)

RESPONSE_FIELDS = FieldTable(_body, BODY)


class ResponsesRequest:
    """A parsed body of `/v1/responses`."""

    def __init__(self, body: _ResponsesBody, raw: bytes) -> None:
        """Parse a body. `raw` is the body as the client sent it."""
        self._body = body
        self.num_bytes = len(raw)
        self.raw = raw if body.background else b""
        """The body of a response in the background, until its note is made."""
        if body.background and not body.store:
            raise InvalidRequest("`background` needs `store: true`", field="background")
        found = body.constraints()
        self._grammar = the_only(found)
        self.field_names = body.names(found, FIELD_NAMES, also=_NAMES)
        """The names of neutral fields in this body."""
        self.references = tuple(each for each in body.input if isinstance(each, ItemReference))
        """The entries of the input that refer to stored items."""
        self.input = tuple(each for each in body.input if not isinstance(each, ItemReference))
        """The items of the input. `refer` adds the items to which the input only refers."""
        self.previous_response_id = body.previous_response_id
        self.conversation_id = _conversation_id(body)
        """The conversation whose items come before the input. The turn is added to it."""
        self.model = body.model
        self.stream = body.stream
        self.store = body.store
        self.background = body.background
        self.namespaces = namespaces(body.tools)
        """The namespace of each function that has one, by the model's name of the function."""

    def refer(self, items: Mapping[str, Item]) -> None:
        """Replace references by those `items` that have their ids.

        All other references are removed.
        """
        given = (
            items.get(each.id) if isinstance(each, ItemReference) else each
            for each in self._body.input
        )
        self.input = tuple(each for each in given if each is not None)
        if self.raw:
            self.raw = to_json({**from_json(self.raw), "input": self.input})

    def request(self, history: tuple[Item, ...]) -> GenerateRequest:
        """Return the request; `history` has the items before its own input.

        Raises `InvalidRequest` and `RequestTooLarge`.
        """
        body = self._body
        messages = to_messages(body.instructions, (*history, *self.input))
        if not messages:
            raise InvalidRequest("`input` is missing", field="input")
        if len(messages) > MAX_MESSAGES:
            raise InvalidRequest(
                f"the conversation has {len(messages)} messages; {MAX_MESSAGES} are allowed",
                field="input",
            )
        tools = _allowed(body)
        request = GenerateRequest(
            messages=messages,
            model=body.model,
            # One in the background may be read as a stream at any time, by its events' numbers:
            # these are the same at every balancer only if each token is an event.
            stream=body.stream or body.background,
            max_tokens=None if body.max_output_tokens == -1 else body.max_output_tokens,
            seed=neutral_seed(body.seed),
            priority=priority_of_tier(body.service_tier),
            prompt_cache_key=body.prompt_cache_key,
            tools=tools or None,
            tool_choice=_tool_choice(body) if tools else None,
            parallel_tool_calls=body.parallel_tool_calls,
            grammar=self._grammar,
            logprobs=_LOG_PROBS in body.include or body.top_logprobs > 0,
            top_logprobs=body.top_logprobs or None,
            **reasoning_fields(body.reasoning.effort, verbosity=body.text.verbosity),
            **body.neutral(),
        )
        check_readable(request)
        return request

    def echo(self, model: str, service_tier: UsedTier = "default") -> ResponseEcho:
        """Return the members that the response copies; `model` is the model that answers."""
        body = self._body
        choice = body.tool_choice
        echo: ResponseEcho = {
            "model": model,
            "instructions": body.instructions,
            "previous_response_id": body.previous_response_id,
            "conversation": None if self.conversation_id is None else {"id": self.conversation_id},
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "temperature": DEFAULT_TEMPERATURE if body.temperature is None else body.temperature,
            "top_p": DEFAULT_TOP_P if body.top_p is None else body.top_p,
            "presence_penalty": body.presence_penalty or 0.0,
            "frequency_penalty": body.frequency_penalty or 0.0,
            "tools": [tool.echo() for tool in body.tools],
            "tool_choice": choice if isinstance(choice, str) else choice.echo(),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "text": body.text.echo(),
            "reasoning": {"effort": body.reasoning.effort, "summary": body.reasoning.summary},
            "truncation": "disabled",
            "service_tier": service_tier,
            "top_logprobs": body.top_logprobs,
            "metadata": body.metadata or {},
            "store": body.store,
            "prompt_cache_key": body.prompt_cache_key,
            "safety_identifier": body.safety_identifier,
        }
        if body.user is not None:
            echo["user"] = body.user
        return echo


def parse_response(body: bytes, notes: FieldNotes | None = None) -> ResponsesRequest:
    """Parse the body of `/v1/responses`. Raises `InvalidRequest`."""
    raw = RESPONSE_FIELDS.given(body, notes, prepare=_prepared)
    parsed = parse_json(_body, to_json(raw))
    _check(parsed)
    return ResponsesRequest(parsed, body)


def _prepared(raw: Json) -> Json:
    """Return `raw` with normalised items."""
    given = plain_extras(raw)
    if "input" in given:
        given["input"] = plain_items(given["input"])
    return given


def _check(body: _ResponsesBody) -> None:
    """Raise `InvalidRequest` if the fields contradict each other."""
    if body.conversation is not None and body.previous_response_id is not None:
        raise InvalidRequest(
            "give only one of `conversation` and `previous_response_id`", field="conversation"
        )
    if body.conversation is not None and body.background:
        raise InvalidRequest(
            "`conversation` cannot be used with `background`; `previous_response_id` can",
            field="conversation",
        )
    if body.tool_choice not in ("auto", "none") and not body.tools:
        raise InvalidRequest("`tool_choice` needs `tools`", field="tool_choice")
    if body.ignore_eos and (found := body.constraints()):
        field = found[0][0]
        raise InvalidRequest(
            f"`{field}` cannot be used with `ignore_eos`, because `{field}` decides where "
            "the answer ends",
            field=field,
        )


def _conversation_id(body: _ResponsesBody) -> str | None:
    given = body.conversation
    return given.id if isinstance(given, _ConversationId) else given


def _tool_choice(body: _ResponsesBody) -> ToolChoice:
    choice = body.tool_choice
    if isinstance(choice, AllowedTools):
        return choice.mode
    if isinstance(choice, str):
        return choice
    return NamedTool(name=qualified(choice.name, choice.namespace))


def _allowed(body: _ResponsesBody) -> tuple[Json, ...]:
    """Return the functions that the model may call. Raises `InvalidRequest`."""
    tools = functions(body.tools)
    choice = body.tool_choice
    return choice.among(tools) if isinstance(choice, AllowedTools) else tools
