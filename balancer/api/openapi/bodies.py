"""A request's body as a JSON schema, made of the very types that check it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from .schemas import ANY, NOTHING, Schema, either, ref, untitled


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a body may be: what checks it, and what the door makes of it before that.

    `name` is the component's in the document.

    `ignored` fields are left out before the check, `refused` ones may have the values, as JSON,
    that ask for nothing. `takes_nulls`: null means an absent field. `takes_unknown`: fields that
    nobody knows are left out, at any depth. `also` has, by field, what a value may be besides.
    """

    name: str
    adapter: TypeAdapter[Any]
    takes_nulls: bool = True
    ignored: frozenset[str] = frozenset()
    refused: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    also: Mapping[str, Schema] = field(default_factory=dict)
    takes_unknown: bool = False

    def schemas(self) -> dict[str, Schema]:
        """The body as the component `name`, and what it consists of as `name.…`."""
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
        return {"required": True, "content": {"application/json": {"schema": ref(self.name)}}}

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
