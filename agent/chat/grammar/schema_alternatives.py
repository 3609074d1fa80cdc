"""The alternatives of a JSON Schema: a value is text, one that the schema gives, or JSON of a type.

For notations that write text without quotes: they have to know where a value may be text. A schema
is a client's, so only so much of one is looked through.
"""

import re
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

from ..calls.schema_check import SchemaCheck
from .work import Work

MAX_LOOKS = 2000
"""Parts that are looked at for one value; a schema that has more is refused."""
MAX_DEPTH = 32
_LOOK = 10
"""Units of work for one part, beside its members."""

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "$schema", "$id"}
    | {"deprecated", "readOnly", "writeOnly", "$defs", "definitions"}
)
"""Keywords that say nothing of what fits."""

_TEXT_KEYS = ANNOTATIONS | {"type", "minLength", "maxLength", "pattern"}
_OTHER_TYPES = ("number", "boolean", "null", "array", "object")
_TELLING = {"properties": "object", "required": "object", "items": "array", "prefixItems": "array"}
_JOINED = ("anyOf", "oneOf")
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?", re.DOTALL)
_ANYWHERE = r"(.|\n)*"


class TooManyAlternativesError(Exception):
    """A schema is too large to be looked through."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string that all of the regular expressions `like` match; `ignored` keywords say more."""

    like: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """This very value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Typed:
    """A value of JSON's `type` other than a string, as `schema` has it."""

    type: str
    schema: Mapping[str, Any]


Alternative = Text | Given | Typed


def alternatives_of(schema: object, root: Mapping[str, Any], work: Work) -> list[Alternative]:
    """None if nothing fits. `root` is what references lead into.

    Raises `TooManyAlternativesError` and `TooMuchWorkError`.
    """
    return [
        alternative
        for leaf in leaves_of(schema, root, work)
        for alternative in _alternatives(leaf, root, work)
    ]


def leaves_of(schema: object, root: Mapping[str, Any], work: Work) -> list[Mapping[str, Any]]:
    """The schemas that `schema` joins by `anyOf` and the like, each with one type or none.

    Raises what `alternatives_of` does.
    """
    return list(_Leaves(root, work).of(schema, MAX_DEPTH))


def with_definitions(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` by itself, with what its references lead to."""
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return {**definitions, **schema}


class _Leaves:
    def __init__(self, root: Mapping[str, Any], work: Work) -> None:
        self._root = root
        self._work = work
        self._num_looks = 0

    def of(self, schema: object, depth: int) -> Iterator[Mapping[str, Any]]:
        self._num_looks += 1
        if self._num_looks > MAX_LOOKS or depth == 0:
            raise TooManyAlternativesError("it has too many alternatives, or they go too deep")
        self._work.spend(_LOOK + _size(schema))
        if schema is False:
            return
        whole = dict(schema) if isinstance(schema, Mapping) else {}
        for each in self._opened(whole):
            if each is whole:
                yield each
            else:
                yield from self.of(each, depth - 1)

    def _opened(self, schema: dict[str, Any]) -> list[Any]:
        """`schema` itself if there is nothing to open, or what is in it."""
        rest = dict(schema)
        if isinstance(reference := rest.pop("$ref", None), str):
            return [self._merged(rest, self._target(reference))]
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
        self._work.spend(_LOOK + _size(one) + _size(other))
        return _merged(one, other)

    def _target(self, reference: str) -> object:
        self._work.spend(len(reference))
        found: object = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key, {}) if isinstance(found, Mapping) else {}
        return found


def _size(schema: object) -> int:
    """How much there is to copy."""
    if not isinstance(schema, Mapping):
        return 0
    inner = (schema.get(key) for key in ("properties", "required"))
    return len(schema) + sum(len(each) for each in inner if isinstance(each, Sized))


def _merged(one: Mapping[str, Any], other: object) -> Any:
    """What fits both, as far as their keywords do not stand against each other."""
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
        # Each is held against the rest; against the list as well would cost its length squared.
        rest = {key: leaf[key] for key in leaf if is_const or key != "enum"}
        whole = with_definitions(rest, root)
        work.spend(_LOOK * len(values) + len(whole))
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
    ignored = [key for key in leaf if key not in _TEXT_KEYS]
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
    """Whether a length can be bounded by it; clients may send anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and float(value).is_integer()


def size_in(leaf: Mapping[str, Any], key: str) -> int | None:
    """The bound on a length that `key` gives; `None` if it gives none."""
    value = leaf.get(key)
    return int(value) if value is not None and is_size(value) else None


def whole_pattern(pattern: str) -> str | None:
    """What matches the texts in which `pattern` is found; `None` where that cannot be said."""
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
