"""Prepares a JSON Schema for llguidance: removes mere annotations, and closes objects.

llguidance refuses each `format` that it does not know. It also refuses keywords that it does not
enforce, even if the keyword's value allows everything (`uniqueItems: false`). JSON Schema treats
an unknown `format` as an annotation. So both are removed.

JSON Schema lets an object have members beyond `properties`, unless `additionalProperties` forbids
them. Few authors of `properties` want that, and a model constrained by such a schema invents
members. So an object without `additionalProperties` is closed, as in llama-server and xgrammar. An
object stays open if `additionalProperties` is true or a schema.

If several parts describe one object (`allOf`, or `properties` together with `anyOf` or `$ref`),
the object is closed as a whole. Otherwise one part would refuse the members of another part.
Members that are `required` but have no schema may have any value.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..parsing.schema_check import steps_to, target_of

Json = dict[str, Any]

_DEFINITIONS = ("$defs", "definitions")
_JOINED = ("allOf", "anyOf", "oneOf")
_CHOSEN = ("if", "then", "else")
_DESCRIBING = ("properties", "anyOf", "oneOf", "$ref", "if")
_SAYING = ("additionalProperties", "unevaluatedProperties")
FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
"""The values of `format` that are enforced. Any other value is an annotation."""

_IDLE: Mapping[str, tuple[object, ...]] = {
    "contains": (True, {}),
    "dependencies": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "minContains": (0,),
    "not": (False,),
    "propertyNames": (True, {}),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "uniqueItems": (False,),
}
"""For keywords that llguidance does not know: the values that allow everything."""

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "if": ("then", "else"),
    "then": ("if",),
    "else": ("if",),
    "maxContains": ("contains",),
    "minContains": ("contains",),
}
"""Keywords that have no effect unless one of these other keywords is present."""

_OF_ALL = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "type",
    "enum",
    "const",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
]
_OF_TYPE = {
    "string": ["minLength", "maxLength", "pattern", "format"],
    "array": [
        "items",
        "additionalItems",
        "prefixItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "unevaluatedItems",
    ],
    "object": [
        "properties",
        "patternProperties",
        "additionalProperties",
        "required",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedProperties",
    ],
}

_OPEN = ":open"
"""Suffix of the name of a definition's open copy, for an object that another part closes."""

MAX_PARTS = 500
"""Maximum parts of one object; a schema with more is left unchanged."""
MAX_VISITED = 5000
"""Maximum visits to parts of objects that have several parts; about 20 ms of work."""

MAX_NAMES = 50_000
"""Maximum names of members in these parts, counted at each visit.

Each of thousands of objects may refer to the same long lists of names.
"""


def constraining(schema: Mapping[str, Any], type: str) -> Iterator[str]:
    """Yield the keywords of `schema` that may rule out a value of `type`; others annotate."""
    known = (*_OF_ALL, *_OF_TYPE[type])
    return (key for key in schema if key in known and not _only_annotates(key, schema))


class _Unclear(Exception):
    """No single place in the schema describes the members that an object may have."""


def closed(schema: Mapping[str, Any]) -> Json:
    """Return `schema` without annotations that llguidance refuses, and with closed objects.

    Objects stay open if they have too many parts. They also stay open if a part refers to anything
    other than a definition.
    """
    try:
        return _Closing(schema).schema()
    except _Unclear:
        return _Closing(schema, leaves_open=True).schema()


class _Closing:
    def __init__(self, root: Mapping[str, Any], *, leaves_open: bool = False) -> None:
        self._root = root
        self._leaves_open = leaves_open
        self._opened: dict[str, dict[str, Json]] = {key: {} for key in _DEFINITIONS}
        self._to_open: list[tuple[str, str, Mapping[str, Any]]] = []
        self._num_visited = 0
        self._num_names = 0

    def schema(self) -> Json:
        whole = self._closed(self._root)
        for key in _DEFINITIONS:
            if isinstance(defined := self._root.get(key), Mapping):
                whole[key] = {name: self._value(each) for name, each in defined.items()}
        for key, name, target in self._to_open:  # more are added meanwhile
            self._opened[key][name] = self._inner(target, is_part=True)
        for key, opened in self._opened.items():
            whole |= {key: {**whole[key], **opened}} if opened else {}
        return whole

    def _value(self, schema: object) -> Any:
        return self._closed(schema) if isinstance(schema, Mapping) else schema

    def _closed(self, schema: Mapping[str, Any]) -> Json:
        if self._leaves_open:
            return self._inner(schema, is_part=False)
        parts = list(self._parts(schema))
        if len(parts) == 1:
            made = self._inner(schema, is_part=False)
            if isinstance(named := made.get("properties"), Mapping) and not _says(schema):
                others: Json = {name: {} for name in _required(schema) if name not in named}
                made["properties"] = {**named, **others}
                made["additionalProperties"] = False
            return made
        made = self._inner(schema, is_part=True)
        names = [name for part in parts for name in self._counted(_names(part))]
        if names and not any(map(_says, parts)):
            names += [name for part in parts for name in self._counted(_required(part))]
            own = made.get("properties")
            own = own if isinstance(own, Mapping) else {}
            made["properties"] = {**{name: {} for name in names}, **own}
            made["additionalProperties"] = False
        return made

    def _inner(self, schema: Mapping[str, Any], *, is_part: bool) -> Json:
        """Return a copy whose members' schemas are closed.

        If `is_part`, the copy itself stays open.
        """
        made = {key: each for key, each in schema.items() if not _only_annotates(key, schema)}
        for key in ("properties", "patternProperties", *_DEFINITIONS):
            if isinstance(named := schema.get(key), Mapping):
                made[key] = {name: self._value(each) for name, each in named.items()}
        for key in ("additionalProperties", "items", "additionalItems"):
            if key in schema:
                made[key] = self._value(schema[key])
        for key in ("items", "prefixItems"):
            if isinstance(listed := schema.get(key), list):
                made[key] = [self._value(each) for each in listed]
        for key in _JOINED:
            if isinstance(joined := schema.get(key), list):
                made[key] = [self._part(each) if is_part else self._value(each) for each in joined]
        if is_part and isinstance(reference := schema.get("$ref"), str):
            made["$ref"] = self._open(reference)
        return made

    def _part(self, schema: object) -> Any:
        return self._inner(schema, is_part=True) if isinstance(schema, Mapping) else schema

    def _open(self, reference: str) -> str:
        """Return a reference to a copy of the definition that is not closed."""
        key, name, target = self._target(reference)
        if name + _OPEN not in self._opened[key]:
            self._opened[key][name + _OPEN] = {}
            self._to_open.append((key, name + _OPEN, target))
        return reference + _OPEN

    def _target(self, reference: str) -> tuple[str, str, Mapping[str, Any]]:
        """Return the definition that `reference` names: its keyword, name and schema.

        Raises `_Unclear` if the reference does not name a definition.
        """
        target = target_of(reference, self._root)
        match steps_to(reference):
            case [("$defs" | "definitions") as key, name] if isinstance(target, Mapping):
                return key, name, target
            case _:
                raise _Unclear

    def _parts(self, schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield `schema` and all parts that describe the same object."""
        if not _is_joined(schema):
            yield schema
            return
        found = [schema]
        for number, part in enumerate(found):
            self._num_visited += 1
            if number == MAX_PARTS or self._num_visited > MAX_VISITED:
                raise _Unclear
            yield part
            for key in _JOINED:
                joined = part.get(key)
                listed = joined if isinstance(joined, list) else ()
                found += [each for each in listed if isinstance(each, Mapping)]
            found += [part[key] for key in _CHOSEN if isinstance(part.get(key), Mapping)]
            if isinstance(reference := part.get("$ref"), str):
                _, _, target = self._target(reference)
                if not any(target is each for each in found):
                    found.append(target)

    def _counted(self, names: Iterator[str]) -> Iterator[str]:
        for name in names:
            self._num_names += 1
            if self._num_names > MAX_NAMES:
                raise _Unclear
            yield name


def _only_annotates(key: str, schema: Mapping[str, Any]) -> bool:
    """Return whether `key` rules out no value, though llguidance would refuse it."""
    value = schema[key]
    if key == "format":
        return not (isinstance(value, str) and value in FORMATS)
    if key in _NEEDS and not any(other in schema for other in _NEEDS[key]):
        return True
    return value in _IDLE.get(key, ())


def _is_joined(schema: Mapping[str, Any]) -> bool:
    """Return whether several parts describe one object."""
    all_of = schema.get("allOf")
    num_parts = len(all_of) if isinstance(all_of, list) else 0
    return num_parts + sum(key in schema for key in _DESCRIBING) > 1


def _says(schema: Mapping[str, Any]) -> bool:
    """Return whether the schema itself says if other members are allowed."""
    return any(key in schema for key in _SAYING)


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(named := schema.get("properties"), Mapping):
        yield from named


def _required(schema: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(listed := schema.get("required"), list):
        yield from (name for name in listed if isinstance(name, str))
