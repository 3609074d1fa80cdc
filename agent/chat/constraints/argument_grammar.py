"""Grammars for call arguments in notations that write arguments one by one instead of as JSON.

Arguments come in the order of the schema, or in the order that the notation demands. Required
arguments always occur. No argument occurs twice, and only arguments in the schema occur.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from ....shared.errors import InvalidRequest
from ..families.call_syntax import Members
from ..parsing.gemma_calls import QUOTE
from .closed_schema import constraining
from .lark import Lark
from .schema import Schema, Unenforced, step
from .schema_alternatives import (
    Alternative,
    Given,
    Text,
    TooManyAlternativesError,
    Typed,
    alternatives_of,
    is_size,
    leaves_of,
    size_in,
    with_definitions,
)

_OBJECT_KEYS = ("type", "properties", "required", "additionalProperties")
_ARRAY_KEYS = ("type", "items", "minItems", "maxItems")
_GEMMA_KEY = r"[^:{}\[\],<>\s]([^:{}\[\],<>\n]{0,100}[^:{}\[\],<>\s])?"
_WORDS = {"boolean": '("true" | "false")', "null": '"null"'}


@dataclass(frozen=True, slots=True)
class _Member:
    """One argument of a function. `schema` is `None` if any value is allowed."""

    name: str
    schema: object
    is_required: bool
    place: str


class _Arguments(ABC):
    """Writes the grammar for one function's arguments.

    `schemas` are the parts that llguidance compiles as JSON schemas. `unenforced` lists keywords of
    a lenient schema that the grammar does not enforce.
    """

    def __init__(self, lark: Lark, schema: Schema) -> None:
        self._lark = lark
        self._root = schema.schema
        self._is_lenient = schema.is_lenient
        self._field = schema.field
        self.schemas: list[Schema] = []
        self.unenforced: list[Unenforced] = []

    def write(self) -> str:
        """Return an expression for all arguments.

        Raises `InvalidRequest` for an unsupported schema.
        """
        try:
            found = [
                self._object(leaf, self._field)
                for leaf in self._leaves(self._root, self._field)
                if leaf.get("type", "object") == "object"
            ]
        except RecursionError as error:
            raise _cannot(self._field, "the schema is nested too deeply") from error
        if not found:
            raise _cannot(self._field, "arguments are an object, and the schema allows none")
        return " | ".join(found)

    @abstractmethod
    def _object(self, leaf: Mapping[str, Any], place: str) -> str:
        """Return an expression for an object with the properties of `leaf`."""

    def _leaves(self, schema: object, place: str) -> list[Mapping[str, Any]]:
        try:
            return leaves_of(schema, self._root, self._lark.work)
        except TooManyAlternativesError as error:
            raise _cannot(place, str(error)) from error

    def _alternatives(self, schema: object, place: str) -> list[Alternative]:
        try:
            alternatives = alternatives_of(schema, self._root, self._lark.work)
        except TooManyAlternativesError as error:
            raise _cannot(place, str(error)) from error
        for alternative in alternatives:
            if isinstance(alternative, Text):
                self._must_not_ignore(alternative.ignored, place)
                if alternative.like and isinstance(schema, Mapping):
                    self.schemas.append(self._part(schema, place))
        return alternatives

    def _json(self, schema: Mapping[str, Any], place: str) -> str:
        part = self._part(schema, place)
        self.schemas.append(part)
        return self._lark.json(part.schema, is_lenient=part.is_lenient)

    def _part(self, schema: Mapping[str, Any], place: str) -> Schema:
        found = Schema(place, with_definitions(schema, self._root), self._is_lenient)
        self._lark.work.spend(len(found.schema))
        return found

    def _must_not_ignore(self, keywords: Iterable[str], place: str) -> None:
        for keyword in keywords:
            if not self._is_lenient:
                raise _cannot(
                    place,
                    f"`{keyword}` cannot be enforced in the notation that this model writes "
                    "calls in",
                )
            self.unenforced.append(Unenforced(place, keyword))

    def _members(self, leaf: Mapping[str, Any], place: str) -> list[_Member]:
        held = constraining(leaf, "object")
        self._must_not_ignore((key for key in held if key not in _OBJECT_KEYS), place)
        named = leaf.get("properties")
        properties = dict(named) if isinstance(named, Mapping) else {}
        required = leaf.get("required")
        listed = required if isinstance(required, list) else []
        names = dict.fromkeys(name for name in listed if isinstance(name, str))
        for name in names:
            properties.setdefault(name, leaf.get("additionalProperties", True))
        return [
            _Member(name, schema, name in names, f"{place}.properties{step(name)}")
            for name, schema in properties.items()
        ]

    def _in_a_row(self, members: Sequence[_Member], between: str) -> str:
        """Return an expression for the members that the notation can write, in order.

        Optional members may be omitted. Raises `InvalidRequest` if the notation cannot write a
        required one.
        """
        lark = self._lark
        first = rest = '""'
        for member in reversed(members):
            written = self._member(member)
            if written is None and member.is_required:
                raise _cannot(
                    member.place, "the model has no notation for any value that this allows"
                )
            if written is None:
                continue
            found = lark.rule(written)
            if member.is_required:
                first = f"{found} {rest}"
                rest = lark.rule(f"{between} {found} {rest}")
            else:
                first = lark.rule(f"{found} {rest} | {first}")
                rest = lark.rule(f"({between} {found})? {rest}")
        return first

    @abstractmethod
    def _member(self, member: _Member) -> str | None:
        """Return an expression for name and value; `None` if no valid value can be written."""


class MemberArguments(_Arguments):
    """Writes arguments in the notation that `members` describe."""

    def __init__(self, lark: Lark, schema: Schema, members: Members) -> None:
        super().__init__(lark, schema)
        self._notation = members

    def _object(self, leaf: Mapping[str, Any], place: str) -> str:
        members = self._members(leaf, place)
        return self._lark.rule(self._in_a_row(members, self._lark.literal(self._notation.between)))

    def _member(self, member: _Member) -> str | None:
        notation, lark = self._notation, self._lark
        if not re.fullmatch(notation.key, member.name):
            return None
        after = lark.spelled(notation.after)
        written = [
            f"{lark.spelled(notation.begin, KEY=member.name, TYPE=type)} {value} {after}"
            for type, value in self._values(member)
        ]
        return " | ".join(written) or None

    def _values(self, member: _Member) -> Iterable[tuple[str, str]]:
        """Yield, per alternative, the type's name and an expression for the value and its end."""
        types, end = self._notation.types, self._notation.end
        if not self._notation.barred:
            schema = member.schema if isinstance(member.schema, Mapping) else {}
            if member.schema is not False:
                yield "", f"{self._json(schema, member.place)} {self._lark.literal(end)}"
            return
        alternatives = self._alternatives(member.schema, member.place)
        if not types and any(
            isinstance(alternative, Text) and not alternative.like for alternative in alternatives
        ):
            alternatives = [Text()]  # any text: it includes the other alternatives
        for alternative in alternatives:
            value = self._alternative(alternative, member.place)
            if value is not None:
                yield types.get(_type(alternative), _type(alternative)), value

    def _alternative(self, alternative: Alternative, place: str) -> str | None:
        lark, notation = self._lark, self._notation
        match alternative:
            case Text(like=like):
                return lark.text(like=like, without=notation.barred, end=notation.end)
            case Given(value=value):
                text = value if isinstance(value, str) else _as_json(value)
                if isinstance(value, str) and any(each in text for each in notation.barred):
                    return None
                return lark.literal(text + notation.end)
            case Typed(type=type, schema=schema):
                value = _WORDS.get(type) or self._json(schema, place)
                return f"{value} {lark.literal(notation.end)}"
            case _:
                assert_never(alternative)


class GemmaArguments(_Arguments):
    """Writes arguments as Gemma 4 does: `{key:<|"|>text<|"|>,other:[1,true]}`, sorted by key."""

    def __init__(self, lark: Lark, schema: Schema) -> None:
        super().__init__(lark, schema)
        self._named: dict[str, str | None] = {}

    def _object(self, leaf: Mapping[str, Any], place: str) -> str:
        members = sorted(self._members(leaf, place), key=lambda member: member.name.lower())
        more = leaf.get("additionalProperties", True)
        if members or more is False:
            return self._lark.rule(
                f'"{{" ({self._in_a_row(members, self._lark.literal(","))}) "}}"'
            )
        value = self._value(more, f"{place}.additionalProperties")
        if value is None:
            return '"{}"'
        pair = self._lark.rule(f'/{_GEMMA_KEY}/ ":" {value}')
        return self._lark.rule(f'"{{" ({pair} ("," {pair})*)? "}}"')

    def _member(self, member: _Member) -> str | None:
        value = self._value(member.schema, member.place)
        if value is None or not re.fullmatch(_GEMMA_KEY, member.name):
            return None
        return f"{self._lark.literal(f'{member.name}:')} {value}"

    def _value(self, schema: object, place: str) -> str | None:
        """Return the name of a rule for values of `schema`; `None` if none is valid.

        The rule may be recursive.
        """
        key = json.dumps(schema, sort_keys=True)
        self._lark.work.spend(len(key))
        if key not in self._named:
            self._named[key] = name = self._lark.name()
            alternatives = [
                self._alternative(alternative, place)
                for alternative in self._alternatives(schema, place)
            ]
            written = " | ".join(
                alternative for alternative in alternatives if alternative is not None
            )
            self._named[key] = name if written else None
            self._lark.define(name, written or '""')
        return self._named[key]

    def _alternative(self, alternative: Alternative, place: str) -> str | None:
        lark = self._lark
        match alternative:
            case Text(like=like):
                return f"{lark.literal(QUOTE)} {lark.text(like=like, without=(QUOTE,), end=QUOTE)}"
            case Given(value=value):
                text = _in_gemma(value)
                return None if text is None else lark.literal(text)
            case Typed(type="boolean" | "null" as type):
                return _WORDS[type]
            case Typed(type="object", schema=schema):
                return self._object(schema, place)
            case Typed(type="array", schema=schema):
                return self._array(schema, place)
            case Typed(schema=schema):
                return self._json(schema, place)
            case _:
                assert_never(alternative)

    def _array(self, leaf: Mapping[str, Any], place: str) -> str | None:
        held = constraining(leaf, "array")
        self._must_not_ignore((key for key in held if key not in _ARRAY_KEYS), place)
        item = self._value(leaf.get("items", True), f"{place}.items")
        odd = (key for key in ("minItems", "maxItems") if key in leaf and not is_size(leaf[key]))
        self._must_not_ignore(odd, place)
        least, most = size_in(leaf, "minItems") or 0, size_in(leaf, "maxItems")
        if most is not None and least > most:
            return None
        if item is None or most == 0:
            return None if least else '"[]"'
        more = ""
        if most != 1:
            more = f'("," {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        items = f"{item} {more}"
        return self._lark.rule(f'"[" ({items}){"" if least else "?"} "]"')


def _type(alternative: Alternative) -> str:
    """Return JSON's name for the type of the values of this alternative."""
    match alternative:
        case Text():
            return "string"
        case Typed(type=type):
            return type
        case Given(value=value):
            return _type_of(value)
        case _:
            assert_never(alternative)


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "number"


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _in_gemma(value: object) -> str | None:
    """Return `value` as Gemma writes it; `None` if the parser would read something else."""
    match value:
        case str():
            return None if QUOTE in value else f"{QUOTE}{value}{QUOTE}"
        case list():
            items = [_in_gemma(each) for each in value]
            return None if None in items else f"[{','.join(map(str, items))}]"
        case dict():
            pairs = {key: _in_gemma(each) for key, each in sorted(value.items())}
            if None in pairs.values() or not all(re.fullmatch(_GEMMA_KEY, key) for key in pairs):
                return None
            return "{" + ",".join(f"{key}:{each}" for key, each in pairs.items()) + "}"
        case _:
            return _as_json(value)


def _cannot(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"`{field}` cannot be served: {reason}", field=field)
