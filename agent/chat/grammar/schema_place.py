"""Finds the place in a JSON Schema that cannot be served: the compiler says what, and not where."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .lark import json_part
from .schema import Schema, step

MAX_TRIES = 500
"""Parts that are looked at; a fault beyond is told to be in the part around it."""

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "additionalItems", "not", "if", "then", "else")

Complaint = Callable[[str], str | None]


def schema_place(schema: Schema, complaint: Complaint) -> tuple[str, str] | None:
    """The field and the reason, where `complaint` finds anything wrong with `schema`'s grammar.

    The place is the smallest part with which the same is wrong.
    """
    reason = complaint(_grammar(schema.schema, schema))
    if reason is None:
        return None
    definitions = {
        key: schema.schema[key] for key in ("$defs", "definitions") if key in schema.schema
    }
    place, part, num_tries = schema.field, schema.schema, 0
    is_found = True
    while is_found:
        is_found = False
        for way, child in children(part):
            num_tries += 1
            if num_tries > MAX_TRIES:
                break
            if complaint(_grammar({**definitions, **child}, schema)) == reason:
                place, part, is_found = place + way, child, True
                break
    return place, reason


def _grammar(part: Mapping[str, Any], schema: Schema) -> str:
    return json.dumps({"grammars": [json_part(part, is_lenient=schema.is_lenient)]})


def children(part: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schemas directly within `part`, each with what leads on to it in a field."""
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
