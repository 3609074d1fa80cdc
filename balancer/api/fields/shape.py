"""The members that the objects of a body may have, derived from the types that validate it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """The allowed values at a place in a body.

    `path` names the place, with `[]` for any list index.

    `members` are the known members of an object, and `entries` is the shape of the entries of a
    list. Objects with a member `tag` have one shape for each value of the tag, in `variants`.
    `choices` are the only allowed strings. A shape with none of these allows anything. If it
    `is_object`, objects are allowed but no lists.
    """

    path: str = ""
    members: Mapping[str, "Shape"] | None = None
    entries: "Shape | None" = None
    tag: str | None = None
    variants: Mapping[str, "Shape"] = field(default_factory=dict)
    choices: frozenset[str] = frozenset()
    is_object: bool = False

    @property
    def is_open(self) -> bool:
        """Whether an object or a list at this place may have any content."""
        return self.members is None and self.entries is None and self.tag is None

    def paths(self) -> Iterator[str]:
        """Yield the path of every known member in the shape; repeated if variants share it."""
        for member in (self.members or {}).values():
            yield member.path
            yield from member.paths()
        if self.entries is not None:
            yield from self.entries.paths()
        for variant in self.variants.values():
            yield from variant.paths()

    def kinds(self) -> Iterator[str]:
        """Yield the allowed kinds as paths, such as `tools[].type=function` and
        `tool_choice=auto`.
        """
        yield from (f"{self.path}={choice}" for choice in self.choices)
        yield from (f"{self.path}.{self.tag}={variant}" for variant in self.variants)
        for each in (*(self.members or {}).values(), *self.variants.values()):
            yield from each.kinds()
        if self.entries is not None:
            yield from self.entries.kinds()


def shape_of(adapter: TypeAdapter[Any]) -> Shape:
    """Return the shape of the bodies that `adapter` validates. Its types must not be recursive."""
    schema = adapter.json_schema()
    return _shape(schema, "", schema.get("$defs", {}))


def with_kinds(shape: Shape, kinds: Mapping[str, Iterable[str]]) -> Shape:
    """Return `shape` with the known values of `type` for objects with any content, by their paths.

    Only entries of lists are changed, because no other place has such objects.
    """
    if (found := kinds.get(f"{shape.path}[]")) is not None:
        path = f"{shape.path}[]"
        variants = {kind: Shape(path) for kind in found}
        return replace(shape, entries=Shape(path, tag="type", variants=variants))
    return replace(
        shape,
        members=_all_with_kinds(shape.members, kinds),
        entries=None if shape.entries is None else with_kinds(shape.entries, kinds),
        variants=_all_with_kinds(shape.variants, kinds) or {},
    )


def _all_with_kinds(
    shapes: Mapping[str, Shape] | None, kinds: Mapping[str, Iterable[str]]
) -> dict[str, Shape] | None:
    if shapes is None:
        return None
    return {name: with_kinds(each, kinds) for name, each in shapes.items()}


def _shape(schema: Schema, path: str, named: Mapping[str, Schema]) -> Shape:
    if "$ref" in schema:
        return _shape(named[schema["$ref"].rpartition("/")[2]], path, named)
    if "discriminator" in schema:
        return _tagged(schema["discriminator"], path, named)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            shapes = [_shape(each, path, named) for each in schema[word]]
            takes_text = any(_is_text(each, named) for each in schema[word])
            return _any_of(shapes, path, takes_text=takes_text)
    if "items" in schema:
        entries = _shape(schema["items"], f"{path}[]", named)
        known = entries.choices or not entries.is_open
        return Shape(path, entries=entries) if known else Shape(path)
    if "properties" in schema:
        return _object(schema["properties"], path, named)
    return Shape(path, choices=_choices(schema))


def _object(properties: Mapping[str, Schema], path: str, named: Mapping[str, Schema]) -> Shape:
    """Return the shape of an object. An object with a single allowed type has a tag, too."""
    members = {
        name: replace(
            _shape(each, f"{path}.{name}" if path else name, named),
            is_object=_types(each, named) & {"object", "array"} == {"object"},
        )
        for name, each in properties.items()
    }
    shape = Shape(path, members)
    kind = properties.get("type", {}).get("const")
    return shape if kind is None else Shape(path, tag="type", variants={kind: shape})


def _types(schema: Schema, named: Mapping[str, Schema]) -> set[str]:
    """Return the types of the values that a schema describes."""
    if "$ref" in schema:
        return _types(named[schema["$ref"].rpartition("/")[2]], named)
    parts = [each for word in ("anyOf", "oneOf", "allOf") for each in schema.get(word, ())]
    return (
        {schema["type"]}
        if "type" in schema
        else set().union(*(_types(each, named) for each in parts))
    )


def _choices(schema: Schema) -> frozenset[str]:
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    return frozenset(each for each in values if isinstance(each, str))


def _is_text(schema: Schema, named: Mapping[str, Schema]) -> bool:
    """Return whether any string is allowed."""
    if "$ref" in schema:
        return _is_text(named[schema["$ref"].rpartition("/")[2]], named)
    return schema.get("type") == "string" and not _choices(schema)


def _tagged(discriminator: Schema, path: str, named: Mapping[str, Schema]) -> Shape:
    shapes = {
        value: _shape({"$ref": reference}, path, named)
        for value, reference in discriminator["mapping"].items()
    }
    variants = {value: shape.variants.get(value, shape) for value, shape in shapes.items()}
    return Shape(path, tag=discriminator["propertyName"], variants=variants)


def _any_of(shapes: Iterable[Shape], path: str, *, takes_text: bool) -> Shape:
    """Return the union of `shapes`; at most one is a list, and at most one has a tag."""
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
            frozenset() if takes_text else merged.choices | each.choices,
        )
    return merged
