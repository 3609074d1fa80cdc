"""How OpenAI's bodies say what an answer has to be, and the neutral words for it."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from ....shared.inference import JsonSchemaGrammar, NamedTool, ToolChoice
from ....shared.strict import STRICT
from ..common.field_names import FieldNames

ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """Anything."""

    __pydantic_config__ = STRICT

    type: Literal["text"]

    def grammar(self) -> None:
        """There is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObjectFormat:
    """Any JSON object."""

    __pydantic_config__ = STRICT

    type: Literal["json_object"]

    def grammar(self) -> JsonSchemaGrammar:
        """The neutral words for it."""
        return JsonSchemaGrammar(type="json_schema", schema=ANY_OBJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedSchema:
    """`strict` changes nothing here: what a schema says is always kept to, or refused."""

    __pydantic_config__ = STRICT

    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaFormat:
    """JSON that a schema describes; without a schema, any object."""

    __pydantic_config__ = STRICT

    type: Literal["json_schema"]
    json_schema: _NamedSchema

    def grammar(self) -> JsonSchemaGrammar:
        """The neutral words for it."""
        schema = ANY_OBJECT if self.json_schema.schema is None else self.json_schema.schema
        return JsonSchemaGrammar(type="json_schema", schema=schema)


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FunctionName:
    __pydantic_config__ = STRICT

    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChoice:
    """The one function that has to be called."""

    __pydantic_config__ = STRICT

    type: Literal["function"]
    function: _FunctionName


FORMAT_NAMES = FieldNames({"grammar.schema": "response_format.json_schema.schema"})
"""What the neutral fields are called in a body with a `response_format`."""

Choice = Literal["auto", "none", "required"] | FunctionChoice


def neutral_choice(choice: Choice | None) -> ToolChoice | None:
    """`choice` in neutral words."""
    return NamedTool(name=choice.function.name) if isinstance(choice, FunctionChoice) else choice
