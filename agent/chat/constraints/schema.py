"""A JSON Schema of a request, and the part of it that cannot be enforced.

llguidance's compiler says what is wrong with a schema and which keywords it does not enforce, but
not where they are.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....shared.inference import Notice
from .lark import json_part

_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, and the request `field` that holds it.

    A lenient schema is enforced as far as possible. Any other schema is enforced fully or refused.
    """

    field: str
    schema: Mapping[str, Any]
    is_lenient: bool = False


def step(name: str) -> str:
    """Return the part of a field's path for the member `name`."""
    return (
        f".{name}"
        if _PLAIN_KEY.fullmatch(name)
        else f"[{json.dumps(name, ensure_ascii=False)[:66]}]"
    )


@dataclass(frozen=True, slots=True, order=True)
class Unenforced:
    """A `keyword` of the schema at `place` in the request that is not enforced."""

    place: str
    keyword: str


MAX_TRIES = 500
MAX_TRIED = 1024 * 1024
"""Maximum subschemas tried, and maximum characters of a subschema with its definitions.

Together they take about a second. Beyond these limits, the error names the enclosing part.
"""

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "additionalItems", "not", "if", "then", "else")

Complaint = Callable[[str], str | None]


def schema_place(schema: Schema, complaint: Complaint) -> tuple[str, str] | None:
    """Return the field and the reason if `complaint` rejects the schema's grammar, else `None`.

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
    """Yield the direct subschemas of `part`, each with its relative path."""
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


MAX_VISITED = 2000
"""Maximum subschemas searched; keywords in further subschemas are not reported."""

_KEYWORDS = re.compile(r"Unimplemented keys: (\[[^\]]*\])")
"""Matches llguidance's warning; a count may follow in the warning."""


def keywords_in(warnings: Iterable[str]) -> frozenset[str]:
    """Return the keywords that llguidance does not enforce, from warnings that give no location."""
    found = (_KEYWORDS.match(warning) for warning in warnings)
    return frozenset(keyword for each in found if each for keyword in json.loads(each[1]))


def places_of(keywords: frozenset[str], schemas: Iterable[Schema]) -> Iterator[Unenforced]:
    """Yield each occurrence of `keywords` in `schemas`, outermost first."""
    parts = [(each.field, each.schema) for each in schemas] if keywords else []
    for num_visited, (place, part) in enumerate(parts):
        yield from (Unenforced(place, key) for key in part if key in keywords)
        if num_visited + len(parts) < MAX_VISITED:
            parts += [(place + way, child) for way, child in children(part)]


def notice_of(found: Sequence[Unenforced]) -> Notice | None:
    """Return one notice for all unenforced keywords; `None` if every keyword is enforced."""
    if not found:
        return None
    first, num_more = found[0], len(found) - 1
    more = f", and {num_more} more are not" if num_more else ""
    return Notice(
        "schema_not_enforced",
        f"`{first.place}`: `{first.keyword}` is not enforced{more}; "
        "with `strict` it is refused instead",
    )
