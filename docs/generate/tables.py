"""Makes the tables of the generated pages, and describes values in words."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

Schema = dict[str, Any]

NULL = {"type": "null"}
"""The schema of null, which tables leave out of a field's kinds."""

LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "maxProperties": "at most {} entries",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def kind_of(schema: Schema) -> str:
    """Return a description of the values that a JSON Schema allows."""
    limits = [text.format(schema[key]) for key, text in LIMITS.items() if key in schema]
    return ", ".join([_bare_kind(schema), *limits])


def referred(schema: Schema) -> str:
    """Return the name of the schema to which `$ref` refers."""
    return str(schema["$ref"]).rpartition("/")[2]


def _bare_kind(schema: Schema) -> str:
    match schema:
        case {"$ref": _}:
            return referred(schema)
        case {"const": value}:
            return f"`{json.dumps(value)}`"
        case {"enum": values}:
            return " or ".join(f"`{json.dumps(value)}`" for value in values)
        case {"anyOf": kinds} | {"oneOf": kinds}:
            return " or ".join(kind_of(kind) for kind in kinds if kind != NULL)
        case {"type": "array", "items": items}:
            return f"list of {_grouped(kind_of(items))}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"object of {_grouped(kind_of(values))}"
    return str(schema["type"])


def _grouped(kind: str) -> str:
    return f"({kind})" if " " in kind else kind
