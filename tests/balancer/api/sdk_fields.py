"""What a client library's request types may hold, to be held against our tables.

The library's types are followed as deep as ours go: fields, kinds of objects (`type`, `role`) and
single values. So a new release of a library shows up as a failing test.
"""

from collections.abc import Collection, Iterator
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from typing_extensions import (
    TypeAliasType,
    get_type_hints,
    is_typeddict,
)

from arriero.balancer.api.fields.field_table import FieldTable
from arriero.balancer.api.fields.shape import Shape

OUT_OF_BODY = frozenset({"betas"})
"""Parameters that the libraries send as headers."""

_WRAPPERS = (Annotated, Required, NotRequired)


def unlisted(table: FieldTable, *parameters: type[Any], whole: Collection[str] = ()) -> list[str]:
    """Paths of the request types `parameters` that are in none of the three kinds.

    At the paths `whole` any object is taken as it is, so that nothing in it is compared. Raises
    `ValueError` for one of them that is not met.
    """
    comparison = _Comparison(table, frozenset(whole))
    for each in parameters:
        comparison.compare(each, table.shape)
    if unmet := comparison.whole - comparison.met:
        raise ValueError(f"nothing is taken whole at {', '.join(sorted(unmet))}")
    return sorted(comparison.found)


def unlisted_names(table: FieldTable, *parameters: type[Any]) -> list[str]:
    """Own fields of the request types that are in none of the three kinds, without nested ones."""
    names = {name for each in parameters for name in get_type_hints(each)} - OUT_OF_BODY
    return sorted(names - table.obeyed - table.rules.keys())


class _Comparison:
    """Goes down the library's types and our shape side by side."""

    def __init__(self, table: FieldTable, whole: frozenset[str]) -> None:
        self.listed = table.rules.keys() | table.prepared
        self.whole = whole
        self.met: set[str] = set()
        self.found: set[str] = set()

    def compare(self, theirs: Any, shape: Shape) -> None:
        for each in alternatives(theirs):
            if is_typeddict(each):
                self._object(each, shape)
            elif get_origin(each) is Literal:
                self._values(get_args(each), shape)
            elif (entry := _entry(each)) is not None:
                self.compare(entry, shape.entries or Shape(f"{shape.path}[]"))

    def _object(self, theirs: Any, shape: Shape) -> None:
        fields = get_type_hints(theirs, include_extras=True)
        if shape.tag is not None:
            for variant in self._variants(fields.get(shape.tag), theirs, shape):
                self._members(fields, variant)
        elif shape.members is not None:
            self._members(fields, shape)
        elif shape.path in self.whole:
            self.met.add(shape.path)
        else:
            self.found.add(f"{shape.path}: {theirs.__name__}")

    def _variants(self, tag: Any, theirs: Any, shape: Shape) -> Iterator[Shape]:
        kinds = [kind for each in alternatives(tag) for kind in get_args(each)]
        if not kinds:
            self.found.add(f"{shape.path}: {theirs.__name__}")
        for kind in kinds:
            if kind not in shape.variants:
                self._check(f"{shape.path}.{shape.tag}={kind}")
            elif not shape.variants[kind].is_open:
                yield shape.variants[kind]

    def _members(self, fields: dict[str, Any], shape: Shape) -> None:
        for name, theirs in fields.items():
            member = (shape.members or {}).get(_written(name, theirs))
            if member is not None:
                self.compare(theirs, member)
            elif name not in OUT_OF_BODY:
                written = _written(name, theirs)
                self._check(f"{shape.path}.{written}" if shape.path else written)

    def _values(self, values: tuple[Any, ...], shape: Shape) -> None:
        for value in values:
            if shape.choices and value not in shape.choices:
                self._check(f"{shape.path}={value}")

    def _check(self, path: str) -> None:
        if path not in self.listed:
            self.found.add(path)


def alternatives(theirs: Any) -> Iterator[Any]:
    """The alternatives of a union, without wrappers and aliases."""
    origin = get_origin(theirs)
    if isinstance(theirs, TypeAliasType):
        yield from alternatives(theirs.__value__)
    elif origin in _WRAPPERS:
        yield from alternatives(get_args(theirs)[0])
    elif origin in (Union, UnionType):
        for each in get_args(theirs):
            yield from alternatives(each)
    elif theirs not in (None, type(None)):
        yield theirs


def _entry(theirs: Any) -> Any:
    """The type of a list's entries; `None` for what is no list."""
    arguments = get_args(theirs)
    return arguments[0] if len(arguments) == 1 else None


def _written(name: str, theirs: Any) -> str:
    """A field's name in the body, which need not be that of the parameter."""
    if get_origin(theirs) in (Required, NotRequired):
        return _written(name, get_args(theirs)[0])
    found = (getattr(each, "alias", None) for each in getattr(theirs, "__metadata__", ()))
    return next((alias for alias in found if alias), name)
