"""Validates a value against a JSON Schema, and finds the first mismatch.

The schema comes from a client, the value comes from a model, and the check runs on the event loop.
So the check always returns, after at most `MAX_WORK` units and at most `MAX_DEPTH` levels. Parts
that are unchecked by then count as valid. Values are compared by hash, patterns match in linear
time, and references are resolved only within the schema. Unknown and malformed keywords are
ignored.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

from .pattern import Pattern, cost_of

_CHARACTERS_PER_UNIT = 64

Spend = Callable[[int], None]
"""Called with units of work before they are done; raises if the budget is spent."""


def steps_to(reference: object) -> list[str] | None:
    """Return the keys that lead from a schema's root to `reference`; `None` if it is not local."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return [step.replace("~1", "/").replace("~0", "~") for step in reference.split("/")[1:]]


def target_of(reference: object, root: object) -> object:
    """Return the part of the schema `root` that `reference` names; `True` without such a part.

    `True` is the schema that allows any value.
    """
    found, steps = root, steps_to(reference)
    if steps is None:
        return True
    for key in steps:
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and _is_index(key, found):
            found = found[int(key)]
        else:
            return True
    return found


def _is_index(key: str, items: Sized) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(items)


class TooDeepError(Exception):
    """The value is nested too deep."""


def canonical(value: object, spend: Spend, most_depth: int) -> str:
    """Return the canonical text of `value`: equal values have equal texts.

    1 equals 1.0; 1 differs from true. The text is a key of hash tables. Python randomizes the
    hashes of strings per process, but not the hashes of numbers and tuples, so a client could
    choose values whose hashes collide. Raises `TooDeepError`, and the exceptions that `spend`
    raises.
    """
    return "".join(_parts(value, spend, most_depth))


def _parts(value: object, spend: Spend, depth: int) -> Iterator[str]:
    spend(1)
    match value:
        case str():
            yield _quoted(value, spend)
        case bool() | None:
            yield repr(value)
        case int():
            yield _hex(value, spend)
        case float():
            yield f"{int(value):x}" if value.is_integer() else repr(value)
        case list() | dict() if depth == 0:
            raise TooDeepError
        case list():
            yield "["
            for each in value:
                yield from _parts(each, spend, depth - 1)
                yield ","
            yield "]"
        case dict():
            yield "{"
            for key in sorted(value):
                yield _quoted(key, spend)
                yield ":"
                yield from _parts(value[key], spend, depth - 1)
                yield ","
            yield "}"
        case _:
            pass


def _quoted(text: str, spend: Spend) -> str:
    spend(len(text) // _CHARACTERS_PER_UNIT)
    return json.dumps(text)


def _hex(number: int, spend: Spend) -> str:
    spend(number.bit_length() // _CHARACTERS_PER_UNIT)
    return f"{number:x}"  # decimal takes quadratic time, and Python limits its length


MAX_WORK = 200_000
"""Maximum work of one check, over all its values, in units of about half a microsecond."""

MAX_DEPTH = 100
"""Maximum nesting of values, and of schemas."""

_CHECK = 10
"""Units to check one value against one schema; a larger schema adds further units."""

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
class Mismatch:
    """The first mismatch: `finding` says what is wrong with the value at `place`.

    `place` is empty for the whole value.
    """

    place: str
    finding: str


class _OutOfWorkError(Exception):
    """The work budget is spent; unchecked parts count as valid."""


def find_mismatch(value: object, schema: object) -> Mismatch | None:
    """Return the first mismatch; `None` if `value` is valid."""
    return SchemaCheck(schema).find(value)


class SchemaCheck:
    """Checks values against one schema. All checks together share `MAX_WORK`."""

    def __init__(self, schema: object) -> None:
        self._root = schema
        self._work_left = MAX_WORK
        self._options: dict[int, frozenset[str]] = {}
        self._patterns: dict[str, Pattern] = {}

    def find(self, value: object) -> Mismatch | None:
        """Return the first mismatch of `value`; `None` if it is valid."""
        try:
            return self._check(value, self._root, "", 0)
        except _OutOfWorkError:
            return None

    def _spend(self, units: int) -> None:
        self._work_left -= units
        if self._work_left < 0:
            raise _OutOfWorkError

    def _check(self, value: object, schema: object, place: str, depth: int) -> Mismatch | None:
        self._spend(_CHECK)
        if depth > MAX_DEPTH:
            raise _OutOfWorkError
        if schema is False:
            return Mismatch(place, "is not allowed")
        if not isinstance(schema, Mapping):
            return None
        if finding := self._finding(value, schema):
            return Mismatch(place, finding)
        return self._within(value, schema, place, depth + 1) or self._combined(
            value, schema, place, depth + 1
        )

    def _within(
        self, value: object, schema: Mapping[str, Any], place: str, depth: int
    ) -> Mismatch | None:
        if isinstance(value, dict):
            return self._in_object(value, schema, place, depth)
        if isinstance(value, list):
            return self._in_list(value, schema, place, depth)
        return None

    def _in_object(
        self, value: dict[str, Any], schema: Mapping[str, Any], place: str, depth: int
    ) -> Mismatch | None:
        required = _list(schema.get("required"))
        self._spend(len(required))
        for key in required:
            if isinstance(key, str) and key not in value:
                return Mismatch(_joined(place, key), "is missing")
        for key, others in _mapping(schema.get("dependentRequired")).items():
            if key in value and (
                missing := next((n for n in _list(others) if n not in value), None)
            ):
                return Mismatch(_joined(place, str(missing)), "is missing")
        if "propertyNames" in schema:
            for key in value:
                if found := self._check(key, schema["propertyNames"], _joined(place, key), depth):
                    return Mismatch(found.place, f"has a name that {found.finding}")
        known = _mapping(schema.get("properties"))
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        for key, member in value.items():
            at = _joined(place, key)
            if key not in known and others is False:
                return Mismatch(at, "is unknown")
            if found := self._check(member, known.get(key, others), at, depth):
                return found
        return None

    def _in_list(
        self, value: list[Any], schema: Mapping[str, Any], place: str, depth: int
    ) -> Mismatch | None:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items", True)
        for position, item in enumerate(value):
            each = first[position] if position < len(first) else rest
            if found := self._check(item, each, f"{place}[{position}]", depth):
                return found
        if schema.get("uniqueItems") is True:
            seen: set[str] = set()
            for position, item in enumerate(value):
                text = self._canonical(item)
                if text in seen:
                    return Mismatch(f"{place}[{position}]", "is there twice")
                seen.add(text)
        if "contains" in schema:
            return self._contained(value, schema, place, depth)
        return None

    def _contained(
        self, value: list[Any], schema: Mapping[str, Any], place: str, depth: int
    ) -> Mismatch | None:
        part = schema["contains"]
        count = [self._check(item, part, place, depth) for item in value].count(None)
        least, most = schema.get("minContains", 1), schema.get("maxContains")
        if _is_a(least, "integer") and isinstance(least, int) and count < least:
            return Mismatch(place, "has too few items of one kind")
        if isinstance(most, int) and count > most and self._is_sure(part):
            return Mismatch(place, "has too many items of one kind")
        return None

    def _combined(
        self, value: object, schema: Mapping[str, Any], place: str, depth: int
    ) -> Mismatch | None:
        if "$ref" in schema:
            reference = schema["$ref"]
            self._spend(len(reference) if isinstance(reference, str) else 0)
            target = target_of(reference, self._root)
            if found := self._check(value, target, place, depth):
                return found
        for each in _list(schema.get("allOf")):
            if found := self._check(value, each, place, depth):
                return found
        for key in ("anyOf", "oneOf"):
            choices = _list(schema.get(key))
            founds = [self._check(value, each, place, depth) for each in choices]
            if choices and all(founds):
                return founds[0] if len(founds) == 1 else Mismatch(place, _NONE_FITS)
            if key == "oneOf" and founds.count(None) > 1 and self._is_sure(choices):
                return Mismatch(place, "matches more than one of the schemas")
        return self._chosen(value, schema, place, depth)

    def _chosen(
        self, value: object, schema: Mapping[str, Any], place: str, depth: int
    ) -> Mismatch | None:
        """Return the mismatch with `not`, or with the branch that applies (`then` or `else`)."""
        barred = schema.get("not", False)
        if self._is_sure(barred) and self._check(value, barred, place, depth) is None:
            return Mismatch(place, "matches a schema that it must not match")
        if "if" in schema and self._is_sure(schema["if"]):
            is_so = self._check(value, schema["if"], place, depth) is None
            return self._check(value, schema.get("then" if is_so else "else"), place, depth)
        return None

    def _is_sure(self, schema: object, depth: int = 0) -> bool:
        """Return whether every keyword of `schema` is checked."""
        self._spend(_CHECK)
        if depth > MAX_DEPTH:
            raise _OutOfWorkError
        if isinstance(schema, list):
            return all(self._is_sure(each, depth + 1) for each in schema)
        if not isinstance(schema, Mapping):
            return True
        return _UNCHECKED.isdisjoint(schema) and all(
            self._is_sure(each, depth + 1) for each in schema.values()
        )

    def _finding(self, value: object, schema: Mapping[str, Any]) -> str | None:
        """Return what is wrong with `value` itself, without its members or items."""
        types = schema.get("type")
        expected = [types] if isinstance(types, str) else _list(types)
        self._spend(len(expected))
        if expected and not any(_is_a(value, each) for each in expected):
            return f"must be of type {' or '.join(map(str, expected[:_MOST_TYPES]))}"
        options = schema.get("enum")
        if isinstance(options, list) and not self._is_among(value, options):
            return "is not one of the allowed values"
        if "const" in schema and self._canonical(value) != self._canonical(schema["const"]):
            return "is not the required value"
        if not self._matches(value, schema.get("pattern")):
            return "does not match the schema's pattern"
        return next(
            (wrong for key, fits, wrong in _BOUNDS if not _holds(value, schema.get(key), fits)),
            None,
        )

    def _is_among(self, value: object, options: list[object]) -> bool:
        known = self._options.get(id(options))  # the schema outlives this check
        if known is None:
            known = frozenset(self._canonical(each) for each in options)
            self._options[id(options)] = known
        return self._canonical(value) in known

    def _canonical(self, value: object) -> str:
        try:
            return canonical(value, self._spend, MAX_DEPTH)
        except TooDeepError as error:
            raise _OutOfWorkError from error

    def _matches(self, value: object, pattern: object) -> bool:
        if not isinstance(value, str) or not isinstance(pattern, str):
            return True
        self._spend(2 * len(pattern))
        cost = cost_of(pattern)
        compiled = self._patterns.get(pattern)
        self._spend(cost.to_match(value) + (cost.to_compile if compiled is None else 0))
        if compiled is None:
            compiled = self._patterns[pattern] = Pattern(pattern)
        return compiled.matches(value)


_UNCHECKED = frozenset(
    (
        *("format", "multipleOf", "patternProperties", "additionalItems", "dependencies"),
        *("dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$ref"),
    )
)
"""Keywords that may constrain a value but are not checked."""

_NONE_FITS = "matches none of the allowed schemas"
_MOST_TYPES = 8
"""Maximum types listed in an error; JSON Schema has seven."""


_Bound = Callable[[Any, Any], bool]


def _number_bound(fits: _Bound) -> _Bound:
    return lambda value, limit: (
        not _is_a(value, "number") or not _is_a(limit, "number") or fits(value, limit)
    )


def _size_bound(kind: type[Sized], fits: _Bound) -> _Bound:
    return lambda value, limit: (
        not isinstance(value, kind) or not _is_a(limit, "integer") or fits(len(value), limit)
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
)


def _holds(value: object, limit: object, fits: _Bound) -> bool:
    return limit is None or fits(value, limit)


def _is_a(value: object, name: object) -> bool:
    if not isinstance(name, str) or name not in _TYPES:
        return True  # unknown types are ignored
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float) and name == "integer":
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _joined(place: str, key: str) -> str:
    return f"{place}.{key[:100]}" if place else key[:100]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
