"""The three kinds of fields of a request type, and the pass over a body that applies them.

The fields of the type that validates the body are obeyed. A table lists the other known fields,
with a reason for each. A field that is in no table is ignored and reported. A field with `null`
counts as absent; so does an empty list for a field in a table.

Paths are written as in `Shape`, such as `messages[].content[].cache_control`.
`tools[].type=web_search` stands for the objects with that type, and `include[]=usage` for that
value in the list; ignored ones are left out. `tools[].type=*` stands for all types without a line
of their own.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, NoReturn, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from ....shared.errors import InvalidRequest
from ....shared.validation import parse_json
from ..common.body_fields import body_fields
from .shape import Shape, shape_of, with_kinds

T = TypeVar("T")

MAX_NAMES = 16
"""Maximum ignored fields of one body that are reported by name."""

MAX_NAME = 64
"""Maximum length of a reported field name, in characters."""

OTHER = "other"
"""The metric's label for fields that are in no table."""

_UNPRINTABLE = re.compile(r"[^\w.=\[\]-]", re.ASCII)


class FieldNotes:
    """The ignored fields, noted while a body is read.

    With `is_strict`, fields are refused instead.
    """

    def __init__(self, *, is_strict: bool = False) -> None:
        self.is_strict = is_strict
        self._ignored: dict[str, str] = {}
        self._has_more = False

    def add(self, path: str, *, is_known: bool) -> None:
        """Note that the field at `path` was ignored; `is_known`: a table lists the field."""
        name = _UNPRINTABLE.sub("_", path[:MAX_NAME])
        if name in self._ignored:
            return
        if len(self._ignored) == MAX_NAMES:
            self._has_more = True
            return
        self._ignored[name] = path if is_known else OTHER

    @property
    def names(self) -> tuple[str, ...]:
        """Return the ignored fields in printable ASCII, each once; at most `MAX_NAMES`."""
        return tuple(self._ignored)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return for each of `names` its path in the table, or `OTHER`.

        Metrics use these few values as labels.
        """
        return tuple(self._ignored.values())

    @property
    def header(self) -> str:
        """Return the names as the value of a header; empty if nothing was ignored."""
        return ", ".join((*self._ignored, *(("...",) if self._has_more else ())))


Place = tuple["Place", str | int] | None
"""A value's location in the body: its container's location, and its name or index in it."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """A rule for a field that is omitted and reported, because the answer is right without it.

    The values in `nothing`, as JSON, have no meaning, and are not reported.
    """

    why: str
    nothing: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Refused:
    """A rule for a field that is refused, because without it the answer would be another one.

    The values in `nothing`, as JSON, have no meaning, and are accepted.
    """

    why: str
    nothing: frozenset[bytes] = frozenset()


Rule = Ignored | Refused


def nothing(*values: str) -> frozenset[bytes]:
    """Return values, as JSON, that have no meaning for a field."""
    return frozenset(value.encode() for value in values)


_OPEN = Shape()
_MAPS = ("parameters", "properties", "patternProperties", "$defs", "definitions")
_IS_SCHEMA = re.compile(
    r"(tools\[\]|(?<![A-Za-z])(schema|input_schema|\w*json\w*|parameters|format))$"
)
"""Paths of JSON schemas, and of tools that have a schema."""


class FieldTable(Generic[T]):
    """The fields of one request type.

    `kinds` are the known values of `type` in objects whose other members are not checked.
    `prepared` are fields that count as obeyed because `prepare` in `given` replaces them.
    """

    def __init__(
        self,
        adapter: TypeAdapter[T],
        rules: Mapping[str, Rule],
        *,
        kinds: Mapping[str, Iterable[str]] = MappingProxyType({}),
        prepared: Iterable[str] = (),
    ) -> None:
        self.adapter = adapter
        self._kinds = kinds
        self.rules = dict(rules)
        self.prepared = frozenset(prepared)

    @cached_property
    def shape(self) -> Shape:
        """The shape of the fields that the type obeys.

        Raises `ValueError` if a rule is about an obeyed field.
        """
        shape = with_kinds(shape_of(self.adapter), self._kinds)
        if both := self._obeyed(shape) & self.rules.keys():
            raise ValueError(f"obeyed and yet ignored or refused: {', '.join(sorted(both))}")
        return shape

    @property
    def obeyed(self) -> frozenset[str]:
        """The paths of all fields that are obeyed."""
        return self._obeyed(self.shape)

    def _obeyed(self, shape: Shape) -> frozenset[str]:
        return self.prepared.union(shape.paths(), shape.kinds())

    def given(
        self,
        body: bytes,
        notes: FieldNotes | None = None,
        *,
        prepare: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> dict[str, Any]:
        """Return only the obeyed members of the JSON object `body`, at any depth.

        Some programs write numbers as `4.0`, and PHP writes `[]` for an object without members.
        These count as 4, and as an empty object, or as an absent field if the object needs
        members. Ignored fields are added to `notes`. `prepare` may expand short forms of values.
        Raises `InvalidRequest` for a refused field.
        """
        given = prepare(body_fields(body))
        if given.get("model") == "":
            del given["model"]  # clients that have none to name say so
        reading = _Pass(self.rules, FieldNotes() if notes is None else notes)
        kept: dict[str, Any] = reading.kept(given, self.shape)
        return kept

    def parsed(
        self,
        body: bytes,
        notes: FieldNotes | None = None,
        *,
        prepare: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> T:
        """Return the obeyed fields of `body` as the table's type. Raises `InvalidRequest`."""
        return parse_json(self.adapter, to_json(self.given(body, notes, prepare=prepare)))


_LOOKED_AT = (dict, list, str)
"""A tuple, since `dict | list | str` would make a union each time, which is slow to check."""


class _Pass:
    """One pass over one body. Free-form values are not copied."""

    def __init__(self, rules: Mapping[str, Rule], notes: FieldNotes) -> None:
        self._rules = rules
        self._notes = notes
        self._noted: set[str] = set()  # of the table's paths

    def kept(self, value: Any, shape: Shape, place: Place = None) -> Any:
        """Return `value` without ignored fields."""
        if isinstance(value, dict):
            known = _variant(value, shape) if shape.tag is not None else shape
            if known.members is not None:
                return self._object(value, known, place)
            return _with_objects(value) if _IS_SCHEMA.search(known.path) else value
        if isinstance(value, list) and shape.entries is not None:
            return self._list(value, shape.entries, place)
        if isinstance(value, list) and float in {type(each) for each in value}:
            return [_whole(each) for each in value]
        return value

    def _object(self, value: dict[str, Any], shape: Shape, place: Place) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        members = shape.members or {}
        for name, each in value.items():
            member = members.get(name)
            if member is None:
                self._leave_out(name, each, shape, place)
            elif each == [] and member.is_object:
                if member.members is None:
                    kept[name] = {}
            elif not isinstance(each, _LOOKED_AT):
                kept[name] = _whole(each)
            elif not self._is_left_out(each, member, (place, name)):
                kept[name] = self.kept(each, member, (place, name))
        return kept

    def _list(self, value: list[Any], shape: Shape, place: Place) -> list[Any]:
        kept = []
        for position, each in enumerate(value):
            if not self._is_left_out(each, shape, (place, position)):
                kept.append(self.kept(each, shape, (place, position)))
        return kept

    def _is_left_out(self, value: Any, shape: Shape, place: Place) -> bool:
        """Return whether the value is ignored. Raises `InvalidRequest` if it is refused."""
        tag = shape.tag if isinstance(value, dict) else None
        kind = value.get(tag) if tag is not None else value
        known: Collection[str] = shape.choices if tag is None else shape.variants
        if not isinstance(kind, str) or not known or kind in known:
            return False
        path = shape.path if tag is None else f"{shape.path}.{tag}"
        name = f"{path}={kind[:64]}"
        rule = self._rules.get(name)
        is_known = rule is not None
        if rule is None:
            rule = self._rules.get(f"{path}=*")
        if rule is None:
            return False  # the types refuse it, and say which kinds there are
        self._apply(rule, name, (place, tag) if tag else place, is_known=is_known, kind=kind)
        return True

    def _leave_out(self, name: str, value: Any, shape: Shape, place: Place) -> None:
        """Note an ignored member. Raises `InvalidRequest` if it is refused."""
        if value is None:
            return
        path = f"{shape.path}.{name}" if shape.path else name
        rule = self._rules.get(path)
        if rule is not None and _asks_for_nothing(value, rule):
            return
        self._apply(rule, path, (place, name), is_known=rule is not None)

    def _apply(
        self,
        rule: Rule | None,
        path: str,
        place: Place,
        *,
        is_known: bool,
        kind: str | None = None,
    ) -> None:
        if isinstance(rule, Refused):
            _refuse(rule, place, kind)
        if self._notes.is_strict:
            _refuse_strictly(rule, place, kind)
        if path not in self._noted:
            self._notes.add(path, is_known=is_known)
            if is_known:
                self._noted.add(path)


def _with_objects(schema: Any) -> Any:
    """Return a JSON schema, or a tool with a schema, with PHP's empty lists as empty objects."""
    if isinstance(schema, list):
        return [_with_objects(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {} if each == [] and name in _MAPS else _with_objects(each)
        for name, each in schema.items()
    }


def _whole(value: Any) -> Any:
    """Return a whole number as an `int`, even if it was written as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _variant(value: dict[str, Any], shape: Shape) -> Shape:
    """Return the variant that an object matches.

    If none matches, the types refuse the object later.
    """
    kind = value.get(shape.tag or "")
    if kind is None and len(shape.variants) == 1:
        return next(iter(shape.variants.values()))
    return shape.variants.get(kind, _OPEN) if isinstance(kind, str) else _OPEN


def _asks_for_nothing(value: Any, rule: Rule) -> bool:
    return value == [] or (bool(rule.nothing) and to_json(value) in rule.nothing)


def _refuse(rule: Refused, place: Place, kind: str | None) -> NoReturn:
    field = _written(place)
    but = f" but for {', '.join(sorted(map(bytes.decode, rule.nothing)))}" if rule.nothing else ""
    advice = "" if rule.nothing else "; leave it out"
    raise InvalidRequest(
        f"`{field}`{_of(kind)} is not supported{but}: {rule.why}{advice}", field=field
    )


def _refuse_strictly(rule: Ignored | None, place: Place, kind: str | None) -> NoReturn:
    field = _written(place)
    if rule is None:
        raise InvalidRequest(f"unknown field `{field}`", field=field)
    raise InvalidRequest(
        f"`{field}`{_of(kind)} has no effect: {rule.why}; leave it out, because this "
        "balancer refuses such fields (--strict-fields)",
        field=field,
    )


def _of(kind: str | None) -> str:
    return "" if kind is None else f": {kind[:64]!r}"


def _written(place: Place) -> str:
    """Return a location as text, such as `messages[0].content`. Long names are cut."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step[:64]}")
    return "".join(reversed(steps)).removeprefix(".")
