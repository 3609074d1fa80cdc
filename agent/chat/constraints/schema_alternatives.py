"""The alternatives of a JSON Schema: text, a value that the schema lists, or JSON of one type.

A notation that writes text without quotes must know which values may be text. Schemas come from
clients, so the work for each is limited.
"""

import re
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

from ..parsing.schema_check import SchemaCheck, target_of
from .closed_schema import constraining
from .lark import Work

MAX_VISITED = 2000
"""Maximum subschemas visited for one value; a schema that needs more is refused."""
MAX_DEPTH = 32
_VISIT = 10
"""Work units for one subschema, without its members."""

_TEXT_KEYS = ("type", "minLength", "maxLength", "pattern")
_OTHER_TYPES = ("number", "boolean", "null", "array", "object")
_TELLING = {"properties": "object", "required": "object", "items": "array", "prefixItems": "array"}
_JOINED = ("anyOf", "oneOf")
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?", re.DOTALL)
_ANYWHERE = r"(.|\n)*"


class TooManyAlternativesError(Exception):
    """A schema has too many alternatives, or nests them too deep."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string that matches every pattern in `like`. Keywords in `ignored` are not enforced."""

    like: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """A schema that allows exactly one value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Typed:
    """A JSON value of a `type` other than string that matches `schema`."""

    type: str
    schema: Mapping[str, Any]


Alternative = Text | Given | Typed


def alternatives_of(schema: object, root: Mapping[str, Any], work: Work) -> list[Alternative]:
    """Return the alternatives of `schema`; an empty list if no value is valid.

    References are resolved in `root`. Raises `TooManyAlternativesError` and `TooMuchWorkError`.
    """
    return [
        alternative
        for leaf in leaves_of(schema, root, work)
        for alternative in _alternatives(leaf, root, work)
    ]


def leaves_of(schema: object, root: Mapping[str, Any], work: Work) -> list[Mapping[str, Any]]:
    """Expand `$ref`, `allOf`, `anyOf`, `oneOf` and type lists; each result has at most one type.

    Raises `TooManyAlternativesError` and `TooMuchWorkError`.
    """
    return list(_Leaves(root, work).of(schema, MAX_DEPTH))


def with_definitions(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return `schema` with the definitions of `root`, so that its references can be resolved."""
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return {**definitions, **schema}


class _Leaves:
    def __init__(self, root: Mapping[str, Any], work: Work) -> None:
        self._root = root
        self._work = work
        self._num_visited = 0

    def of(self, schema: object, depth: int) -> Iterator[Mapping[str, Any]]:
        self._num_visited += 1
        if self._num_visited > MAX_VISITED or depth == 0:
            raise TooManyAlternativesError(
                "the schema has too many alternatives, or they are nested too deeply"
            )
        self._work.spend(_VISIT + _size(schema))
        if schema is False:
            return
        whole = dict(schema) if isinstance(schema, Mapping) else {}
        for each in self._opened(whole):
            if each is whole:
                yield each
            else:
                yield from self.of(each, depth - 1)

    def _opened(self, schema: dict[str, Any]) -> list[Any]:
        """Expand one level; return `[schema]` if there is nothing to expand."""
        rest = dict(schema)
        if isinstance(reference := rest.pop("$ref", None), str):
            self._work.spend(len(reference))
            return [self._merged(rest, target_of(reference, self._root))]
        parts = rest.pop("allOf", None)
        if isinstance(parts, list) and parts:
            for part in parts:
                rest = self._merged(rest, part)
            return [rest]
        for key in _JOINED:
            rest = dict(schema)
            parts = rest.pop(key, None)
            if isinstance(parts, list):
                return [self._merged(rest, part) for part in parts]
        types = schema.get("type")
        if isinstance(types, list):
            return [{**schema, "type": each} for each in types]
        return [schema]

    def _merged(self, one: Mapping[str, Any], other: object) -> Any:
        self._work.spend(_VISIT + _size(one) + _size(other))
        return _merged(one, other)


def _size(schema: object) -> int:
    """Return the number of members that a copy of `schema` has."""
    if not isinstance(schema, Mapping):
        return 0
    inner = (schema.get(key) for key in ("properties", "required"))
    return len(schema) + sum(len(each) for each in inner if isinstance(each, Sized))


def _merged(one: Mapping[str, Any], other: object) -> Any:
    """Return a schema for both; if keywords conflict, those of `other` win."""
    if other is False:
        return False
    if not isinstance(other, Mapping):
        return one
    merged = {**one, **other}
    if isinstance(one.get("properties"), Mapping) and isinstance(other.get("properties"), Mapping):
        merged["properties"] = {**one["properties"], **other["properties"]}
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        merged["required"] = [*one["required"], *other["required"]]
    return merged


def _alternatives(
    leaf: Mapping[str, Any], root: Mapping[str, Any], work: Work
) -> list[Alternative]:
    is_const = "const" in leaf
    values = [leaf["const"]] if is_const else leaf.get("enum")
    if isinstance(values, list):
        # Check each value against the rest; including the `enum` would make this quadratic.
        rest = {key: leaf[key] for key in leaf if is_const or key != "enum"}
        whole = with_definitions(rest, root)
        work.spend(_VISIT * len(values) + len(whole))
        check = SchemaCheck(whole)
        return [Given(each) for each in values if check.find(each) is None]
    type = leaf.get("type")
    if type is None:
        type = next((_TELLING[key] for key in _TELLING if key in leaf), None)
    if type is None:
        return [_text(leaf), *(Typed(each, {**leaf, "type": each}) for each in _OTHER_TYPES)]
    return [_text(leaf)] if type == "string" else [Typed(str(type), {**leaf, "type": type})]


# ---- text


def _text(leaf: Mapping[str, Any]) -> Text:
    like = []
    ignored = [key for key in constraining(leaf, "string") if key not in _TEXT_KEYS]
    ignored += [key for key in ("minLength", "maxLength") if key in leaf and not is_size(leaf[key])]
    least, most = size_in(leaf, "minLength"), size_in(leaf, "maxLength")
    if least or most is not None:
        like.append(rf"(.|\n){{{least or 0},{'' if most is None else most}}}")
    if isinstance(pattern := leaf.get("pattern"), str):
        found = whole_pattern(pattern)
        like += [found] if found is not None else []
        ignored += [] if found is not None else ["pattern"]
    return Text(tuple(like), tuple(ignored))


def is_size(value: object) -> bool:
    """Return whether `value` is a valid bound on a length; clients may send anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and float(value).is_integer()


def size_in(leaf: Mapping[str, Any], key: str) -> int | None:
    """Return the bound on a length at `key`; `None` if it is missing or invalid."""
    value = leaf.get(key)
    return int(value) if value is not None and is_size(value) else None


def whole_pattern(pattern: str) -> str | None:
    """Return a pattern that matches whole texts containing `pattern`; `None` if no such pattern
    exists.

    It does not exist for patterns with lookaround, inner anchors or word boundaries.
    """
    bare = _ESCAPE_OR_CLASS.sub(lambda found: "x" * len(found[0]), pattern)
    begins, ends = bare.startswith("^"), bare.endswith("$")
    inner = slice(int(begins), len(pattern) - int(ends))
    if re.search(r"[\^$]|\(\?", bare[inner].replace("(?:", "(")) or re.search(
        r"\\[bBAzZG]", pattern
    ):
        return None
    if "|" in bare and (begins or ends):
        return None
    before, after = "" if begins else _ANYWHERE, "" if ends else _ANYWHERE
    return f"{before}({pattern[inner]}){after}"
