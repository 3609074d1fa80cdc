"""Finds the unsupported part of a JSON Schema: the compiler says what is wrong, but not where."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .lark import json_part
from .schema import Schema, step

MAX_TRIES = 500
MAX_TRIED = 1024 * 1024
"""Subschemas tried, and their characters including definitions, which take about a second to
compile. Beyond that, the error names the enclosing part."""

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "additionalItems", "not", "if", "then", "else")

Complaint = Callable[[str], str | None]


def schema_place(schema: Schema, complaint: Complaint) -> tuple[str, str] | None:
    """The field and the reason if `complaint` rejects `schema`'s grammar, else `None`.

    The field is the smallest subschema that is rejected for the same reason.
    """
    whole = _grammar(schema.schema, schema)
    reason = complaint(whole)
    if reason is None:
        return None
    definitions = {
        key: schema.schema[key] for key in ("$defs", "definitions") if key in schema.schema
    }
    place, part, num_tries, num_tried = schema.field, schema.schema, 0, len(whole)
    is_found = True
    while is_found:
        is_found = False
        for way, child in children(part):
            grammar = _grammar({**definitions, **child}, schema)
            num_tries += 1
            num_tried += len(grammar)
            if num_tries > MAX_TRIES or num_tried > MAX_TRIED:
                return place, reason
            if complaint(grammar) == reason:
                place, part, is_found = place + way, child, True
                break
    return place, reason


def _grammar(part: Mapping[str, Any], schema: Schema) -> str:
    return json.dumps({"grammars": [json_part(part, is_lenient=schema.is_lenient)]})


def children(part: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The direct subschemas of `part`, each with its relative path."""
    for key in _MAPS:
        children = part.get(key)
        if isinstance(children, Mapping):
            yield from (
                (f".{key}{step(name)}", child)
                for name, child in children.items()
                if isinstance(child, Mapping)
            )
    for key in _LISTS:
        children = part.get(key)
        if isinstance(children, list):
            yield from (
                (f".{key}[{n}]", child)
                for n, child in enumerate(children)
                if isinstance(child, Mapping)
            )
    for key in _SINGLES:
        if isinstance(child := part.get(key), Mapping):
            yield f".{key}", child
