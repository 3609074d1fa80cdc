"""Whether a value is what a JSON Schema describes, and if not, where.

A schema is a program of the client's, and this runs between two steps of a decoding batch: so much
is looked at and no more (`MAX_LOOKS`), patterns are matched in linear time, and references lead
nowhere but into the schema itself. What is not understood (other keywords, keywords with a value
that makes no sense) is no reason to complain.
"""

import json
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_LOOKS = 10_000
"""Values held against schemas; one that takes more is taken for right."""

MAX_DEPTH = 100

_TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


@dataclass(frozen=True, slots=True)
class Misfit:
    """`finding` is what is wrong with the value at `place`, which is empty for the whole."""

    place: str
    finding: str


class _EnoughError(Exception):
    """So much was looked at that the rest is taken for right."""


def misfit(value: object, schema: object) -> Misfit | None:
    """The first thing that is wrong; `None` if nothing is."""
    try:
        return _Check(schema).look(value, schema, "", 0)
    except _EnoughError:
        return None


class _Check:
    def __init__(self, root: object) -> None:
        self._root = root
        self._num_looks = 0

    def look(self, value: object, schema: object, place: str, depth: int) -> Misfit | None:
        self._num_looks += 1
        if self._num_looks > MAX_LOOKS or depth > MAX_DEPTH:
            raise _EnoughError
        if schema is False:
            return Misfit(place, "must not be there")
        if not isinstance(schema, Mapping):
            return None
        if finding := _finding(value, schema):
            return Misfit(place, finding)
        return self._within(value, schema, place, depth + 1) or self._combined(
            value, schema, place, depth + 1
        )

    def _within(
        self, value: object, schema: Mapping[str, Any], place: str, depth: int
    ) -> Misfit | None:
        if isinstance(value, dict):
            return self._in_object(value, schema, place, depth)
        if isinstance(value, list):
            return self._in_list(value, schema, place, depth)
        return None

    def _in_object(
        self, value: dict[str, Any], schema: Mapping[str, Any], place: str, depth: int
    ) -> Misfit | None:
        for key in _list(schema.get("required")):
            if isinstance(key, str) and key not in value:
                return Misfit(_joined(place, key), "is missing")
        known = _mapping(schema.get("properties"))
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        for key, member in value.items():
            at = _joined(place, key)
            if key not in known and others is False:
                return Misfit(at, "is unknown")
            if found := self.look(member, known.get(key, others), at, depth):
                return found
        return None

    def _in_list(
        self, value: list[Any], schema: Mapping[str, Any], place: str, depth: int
    ) -> Misfit | None:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items", True)
        for position, item in enumerate(value):
            each = first[position] if position < len(first) else rest
            if found := self.look(item, each, f"{place}[{position}]", depth):
                return found
        return None

    def _combined(
        self, value: object, schema: Mapping[str, Any], place: str, depth: int
    ) -> Misfit | None:
        if "$ref" in schema:
            target = self._target(schema["$ref"])
            if found := self.look(value, target, place, depth):
                return found
        for each in _list(schema.get("allOf")):
            if found := self.look(value, each, place, depth):
                return found
        for key in ("anyOf", "oneOf"):
            ways = _list(schema.get(key))
            founds = [self.look(value, each, place, depth) for each in ways]
            if ways and all(founds):
                return founds[0] if len(ways) == 1 else Misfit(place, "fits none of its schemas")
        return None

    def _target(self, reference: object) -> object:
        """What a reference into the schema leads to; anything, where it leads nowhere."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        found = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key, True) if isinstance(found, Mapping) else True
        return found


def _finding(value: object, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with `value` itself, whatever is within it."""
    types = schema.get("type")
    wanted = [types] if isinstance(types, str) else _list(types)
    if wanted and not any(_is_a(value, each) for each in wanted):
        return f"must be of type {' or '.join(map(str, wanted))}"
    options = schema.get("enum")
    if isinstance(options, list) and not any(_is_same(value, each) for each in options):
        return "is none of its values"
    if "const" in schema and not _is_same(value, schema["const"]):
        return "is not its value"
    return next(
        (wrong for key, is_right, wrong in _BOUNDS if not _holds(value, schema.get(key), is_right)),
        None,
    )


_Bound = Callable[[Any, Any], bool]


def _number_bound(is_right: _Bound) -> _Bound:
    return lambda value, limit: (
        not _is_a(value, "number") or not _is_a(limit, "number") or is_right(value, limit)
    )


def _size_bound(kind: type[Sized], is_right: _Bound) -> _Bound:
    return lambda value, limit: (
        not isinstance(value, kind) or not _is_a(limit, "integer") or is_right(len(value), limit)
    )


_BOUNDS: tuple[tuple[str, _Bound, str], ...] = (
    ("minimum", _number_bound(lambda value, limit: value >= limit), "is too small"),
    ("maximum", _number_bound(lambda value, limit: value <= limit), "is too large"),
    ("exclusiveMinimum", _number_bound(lambda value, limit: value > limit), "is too small"),
    ("exclusiveMaximum", _number_bound(lambda value, limit: value < limit), "is too large"),
    ("minLength", _size_bound(str, lambda size, limit: size >= limit), "is too short"),
    ("maxLength", _size_bound(str, lambda size, limit: size <= limit), "is too long"),
    ("minItems", _size_bound(list, lambda size, limit: size >= limit), "has too few items"),
    ("maxItems", _size_bound(list, lambda size, limit: size <= limit), "has too many items"),
    ("minProperties", _size_bound(dict, lambda size, limit: size >= limit), "has too few members"),
    ("maxProperties", _size_bound(dict, lambda size, limit: size <= limit), "has too many members"),
    ("pattern", lambda value, pattern: _matches(value, pattern), "does not match its pattern"),
)


def _holds(value: object, limit: object, is_right: _Bound) -> bool:
    return limit is None or is_right(value, limit)


def _matches(value: object, pattern: object) -> bool:
    if not isinstance(value, str) or not isinstance(pattern, str):
        return True
    validator = _compiled(pattern)
    return validator is None or validator.isinstance_python(value)


@lru_cache(maxsize=128)
def _compiled(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _is_a(value: object, name: object) -> bool:
    if not isinstance(name, str) or name not in _TYPES:
        return True  # it is not for us to say
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float) and name == "integer":
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _is_same(one: object, other: object) -> bool:
    """As JSON has it: 1 and 1.0 are one number, 1 and true are not."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, list | dict):
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    return one == other


def _joined(place: str, key: str) -> str:
    return f"{place}.{key[:100]}" if place else key[:100]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
