"""The JSON schema of a request body, generated from the types that validate it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from .schemas import ANY, NOTHING, Schema, either, ref, untitled


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request body: the type that validates it, and what the API does to it before that.

    `name` is the component's in the document.

    `ignored` fields are removed before validation; `refused` ones may only have the listed values,
    as JSON, which have no effect. `takes_nulls`: null means an absent field. `takes_unknown`:
    unknown fields are removed, at any depth. `also` has, by field, further schemas of a value.
    """

    name: str
    adapter: TypeAdapter[Any]
    takes_nulls: bool = True
    ignored: frozenset[str] = frozenset()
    refused: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    also: Mapping[str, Schema] = field(default_factory=dict)
    takes_unknown: bool = False
    media_type: str = "application/json"

    def schemas(self) -> dict[str, Schema]:
        """The body as the component `name`, and its nested types as `name.…`."""
        name = self.name
        whole = self.adapter.json_schema(ref_template=f"#/components/schemas/{name}.{{model}}")
        parts = whole.pop("$defs", {})
        components = {name: self._widened(whole)}
        components |= {f"{name}.{part}": schema for part, schema in parts.items()}
        schemas = {each: untitled(schema) for each, schema in components.items()}
        if self.takes_unknown:
            for schema in schemas.values():
                if schema.get("additionalProperties") is False:
                    del schema["additionalProperties"]
        return schemas

    def described(self) -> Schema:
        """The `requestBody` of an operation that takes it."""
        return {"required": True, "content": {self.media_type: {"schema": ref(self.name)}}}

    def _widened(self, schema: Schema) -> Schema:
        required = schema.get("required", [])
        fields = {
            field: self._taken(field, value, is_required=field in required)
            for field, value in schema["properties"].items()
        }
        fields |= dict.fromkeys(sorted(self.ignored), ANY)
        fields |= {field: _let_through(self.refused[field]) for field in sorted(self.refused)}
        return {**schema, "properties": fields}

    def _taken(self, field: str, schema: Schema, *, is_required: bool) -> Schema:
        besides = [self.also[field]] if field in self.also else []
        if self.takes_nulls and not is_required:
            besides.append(NOTHING)
        return either(schema, *besides) if besides else schema


def _let_through(values: frozenset[bytes]) -> Schema:
    return {"enum": [None, *map(from_json, sorted(values))]}
