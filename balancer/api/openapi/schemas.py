"""Short helpers to write JSON schemas of answers."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

Schema = dict[str, Any]

ANY: Schema = {}
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
NOTHING: Schema = {"type": "null"}
OBJECT: Schema = {"type": "object"}


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object of these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def listing(entry: Schema) -> Schema:
    """A list of any length."""
    return {"type": "array", "items": entry}


def mapping(value: Schema) -> Schema:
    """An object with arbitrary member names."""
    return {"type": "object", "additionalProperties": value}


def one_of(*values: str) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(values)}


def either(*schemas: Schema) -> Schema:
    """What fits any of `schemas`."""
    return {"anyOf": list(schemas)}


def nullable(schema: Schema) -> Schema:
    """`schema`, or null."""
    return either(schema, NOTHING)


def ref(name: str) -> Schema:
    """The component `name` of the same document."""
    return {"$ref": f"#/components/schemas/{name}"}


def fields_of(cls: type) -> dict[str, Schema]:
    """The JSON schema of each field of the flat dataclass `cls`."""
    schema = TypeAdapter(cls).json_schema(mode="serialization")
    return {name: untitled(field) for name, field in schema["properties"].items()}


def untitled(schema: Any) -> Any:
    """`schema` without the titles and defaults that only repeat a field's name or `null`."""
    if isinstance(schema, list):
        return [untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: untitled(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str))
        and not (name == "default" and value is None)
    }
