"""The members that the objects of a body may have, derived from the types that validate it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """A place in a body. `path` is its name, with `[]` for any position in a list.

    `members` are an object's known members, `entries` is the shape of a list's entries. For a
    tagged union, `variants` has one shape for each value of the member `tag`. A shape with none
    of these may hold anything.
    """

    path: str = ""
    members: Mapping[str, "Shape"] | None = None
    entries: "Shape | None" = None
    tag: str | None = None
    variants: Mapping[str, "Shape"] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it may hold anything."""
        return self.members is None and self.entries is None and self.tag is None

    def paths(self) -> Iterator[str]:
        """The path of every known member in it; repeated if variants share one."""
        for member in (self.members or {}).values():
            yield member.path
            yield from member.paths()
        if self.entries is not None:
            yield from self.entries.paths()
        for variant in self.variants.values():
            yield from variant.paths()


def shape_of(adapter: TypeAdapter[Any]) -> Shape:
    """The shape of the bodies that `adapter` validates. Its types must not be recursive."""
    schema = adapter.json_schema()
    return _shape(schema, "", schema.get("$defs", {}))


def _shape(schema: Schema, path: str, named: Mapping[str, Schema]) -> Shape:
    if "$ref" in schema:
        return _shape(named[schema["$ref"].rpartition("/")[2]], path, named)
    if "discriminator" in schema:
        return _tagged(schema["discriminator"], path, named)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return _any_of((_shape(each, path, named) for each in schema[word]), path)
    if "items" in schema:
        entries = _shape(schema["items"], f"{path}[]", named)
        return Shape(path) if entries.is_open else Shape(path, entries=entries)
    if "properties" in schema:
        members = schema["properties"].items()
        return Shape(
            path, {name: _shape(each, _within(path, name), named) for name, each in members}
        )
    return Shape(path)


def _tagged(discriminator: Schema, path: str, named: Mapping[str, Schema]) -> Shape:
    variants = {
        value: _shape({"$ref": reference}, path, named)
        for value, reference in discriminator["mapping"].items()
    }
    return Shape(path, tag=discriminator["propertyName"], variants=variants)


def _any_of(shapes: Iterable[Shape], path: str) -> Shape:
    """The union of `shapes`; at most one is a list, and at most one has a tag."""
    merged = Shape(path)
    for each in shapes:
        members = merged.members
        if each.members is not None:
            members = {**(members or {}), **each.members}
        merged = Shape(
            path,
            members,
            merged.entries or each.entries,
            merged.tag or each.tag,
            merged.variants or each.variants,
        )
    return merged


def _within(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
