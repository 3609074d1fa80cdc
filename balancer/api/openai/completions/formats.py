"""OpenAI's response formats and tool choices, and their conversion to neutral fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from .....shared.errors import InvalidRequest
from .....shared.inference import MAX_TOOLS, JsonSchemaGrammar, NamedTool, ToolChoice
from .....shared.strict import STRICT, ListOf
from ...common.body_fields import FieldNames

ANY_OBJECT: dict[str, Any] = {"type": "object"}

_BETWEEN = "__"


def qualified(name: str, namespace: str | None) -> str:
    """Return the name under which the model sees a function of a namespace.

    The namespace may end with its own separator.
    """
    if not namespace:
        return name
    return f"{namespace}{'' if namespace.endswith(_BETWEEN) else _BETWEEN}{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """Text without constraints."""

    __pydantic_config__ = STRICT

    type: Literal["text"]

    def grammar(self) -> None:
        """Return `None`, because text has no constraint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObjectFormat:
    """Any JSON object, or, as in llama-server, an object that matches `schema`."""

    __pydantic_config__ = STRICT

    type: Literal["json_object"]
    schema: dict[str, Any] | None = None

    def grammar(self) -> JsonSchemaGrammar:
        """Return the neutral form of the constraint."""
        schema = ANY_OBJECT if self.schema is None else self.schema
        return JsonSchemaGrammar(type="json_schema", schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedSchema:
    """A JSON schema.

    If `strict` is false, the parts that cannot be enforced are checked, not refused.
    """

    __pydantic_config__ = STRICT

    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaFormat:
    """JSON that matches a schema; without a schema, any object."""

    __pydantic_config__ = STRICT

    type: Literal["json_schema"]
    json_schema: _NamedSchema

    def grammar(self) -> JsonSchemaGrammar:
        """Return the neutral form of the constraint."""
        named = self.json_schema
        schema = ANY_OBJECT if named.schema is None else named.schema
        strict = named.strict is not False
        return JsonSchemaGrammar(type="json_schema", schema=schema, strict=strict)


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FunctionName:
    __pydantic_config__ = STRICT

    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChoice:
    """The one function that the model must call."""

    __pydantic_config__ = STRICT

    type: Literal["function"]
    function: _FunctionName


FORMAT_NAMES = FieldNames({"grammar.schema": "response_format.json_schema.schema"})
OBJECT_NAMES = FieldNames({"grammar.schema": "response_format.schema"})
"""Names of the neutral fields in a body with a `response_format`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedTools:
    """The tools that the model may call. The model sees no other tools."""

    __pydantic_config__ = STRICT

    mode: Literal["auto", "required"]
    tools: Annotated[ListOf[dict[str, Any]], Field(min_length=1, max_length=MAX_TOOLS)]

    def among(self, tools: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """Return the allowed tools among the neutral `tools`.

        Only functions are returned, since other kinds of tools are omitted everywhere. Raises
        `InvalidRequest`.
        """
        given = {tool["function"].get("name") for tool in tools if _is_function(tool)}
        names = {_name_of(entry) for entry in self.tools if entry.get("type") == "function"}
        if unknown := next((name for name in names if name not in given), None):
            raise InvalidRequest(
                f"`tool_choice`: {unknown[:100]!r} is allowed, but is not among `tools`",
                field="tool_choice",
            )
        if not names:
            raise InvalidRequest("`tool_choice` allows no function", field="tool_choice")
        return tuple(
            tool for tool in tools if _is_function(tool) and tool["function"].get("name") in names
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedChoice:
    """A choice that allows only some of the tools."""

    __pydantic_config__ = STRICT

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _is_function(tool: dict[str, Any]) -> bool:
    return isinstance(tool.get("function"), dict)


def _name_of(entry: dict[str, Any]) -> str:
    """Return a function's name, in the format of Chat Completions or of Responses."""
    function = entry.get("function", entry)
    name = function.get("name") if isinstance(function, dict) else None
    namespace = entry.get("namespace")
    if not isinstance(name, str) or not isinstance(namespace, str | None):
        raise InvalidRequest(
            "`tool_choice`: each allowed function must have a `name`", field="tool_choice"
        )
    return qualified(name, namespace)


Choice = (
    Literal["auto", "none", "required"]
    | Annotated[FunctionChoice | AllowedChoice, Field(discriminator="type")]
)


def neutral_choice(choice: Choice | None) -> ToolChoice | None:
    """Return `choice` in the form of the neutral field."""
    match choice:
        case FunctionChoice():
            return NamedTool(name=choice.function.name)
        case AllowedChoice():
            return choice.allowed_tools.mode
        case _:
            return choice
