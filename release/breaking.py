"""Finds the changes between two OpenAPI documents that break clients.

A later document may add paths, optional fields of a body, fields of an answer, and values of a
body's enumeration. A change breaks clients if it removes something, changes a type, or requires a
new field.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

MAX_DEPTH = 40
"""Maximum depth of the comparison, because schemas may refer to each other in circles."""


def breaking_changes(old: Json, new: Json) -> list[str]:
    """Return each breaking change as a line that begins with its method and path."""
    changes: list[str] = []
    for path, operations in old["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            other = new["paths"].get(path, {}).get(method)
            if other is None:
                changes.append(f"{name}: is gone")
            else:
                compare = _Comparison(name, old, new)
                changes += compare.operation(operation, other)
    return changes


class _Comparison:
    """Compares the old and new form of one operation."""

    def __init__(self, name: str, old: Json, new: Json) -> None:
        self._name = name
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str, bool]] = set()

    def operation(self, old: Json, new: Json) -> Iterator[str]:
        yield from self._parameters(old, new)
        if (body := old.get("requestBody")) is not None:
            other = new.get("requestBody", {})
            yield from self._contents(body.get("content", {}), other.get("content", {}), "body")
        elif new.get("requestBody", {}).get("required"):
            yield self._said("body", "is required now")
        for status, answer in old["responses"].items():
            answer, other = self._resolved(answer, new["responses"].get(status))
            if other is None:
                yield self._said(status, "is answered no longer")
                continue
            yield from self._contents(answer.get("content", {}), other.get("content", {}), status)

    def _parameters(self, old: Json, new: Json) -> Iterator[str]:
        before = {(each["in"], each["name"]): each for each in old.get("parameters", ())}
        after = {(each["in"], each["name"]): each for each in new.get("parameters", ())}
        for place, name in before.keys() - after.keys():
            yield self._said(f"{place} {name}", "is gone")
        for key, parameter in after.items():
            is_required = parameter.get("required", False)
            if is_required and not before.get(key, {}).get("required", False):
                yield self._said(f"{key[0]} {key[1]}", "is required now")

    def _contents(self, old: Json, new: Json, where: str) -> Iterator[str]:
        for kind, content in old.items():
            if (other := new.get(kind)) is None:
                yield self._said(where, f"is {kind} no longer")
            elif "schema" in content and "schema" in other:
                is_body = where == "body"
                yield from self._schema(
                    content["schema"], other["schema"], where, is_body=is_body, depth=0
                )

    def _schema(
        self, old: Any, new: Any, where: str, *, is_body: bool, depth: int
    ) -> Iterator[str]:
        key = (str(old), str(new), is_body)
        if depth > MAX_DEPTH or key in self._seen:
            return
        self._seen.add(key)
        old, new = self._resolved(old, new)
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            return
        more = {"is_body": is_body, "depth": depth + 1}
        yield from self._types(old, new, where, is_body=is_body)
        yield from self._properties(old, new, where, **more)
        if "items" in old and "items" in new:
            yield from self._schema(old["items"], new["items"], f"{where}[]", **more)
        yield from self._choices(old, new, where, **more)

    def _types(self, old: Json, new: Json, where: str, *, is_body: bool) -> Iterator[str]:
        before, after = _types(old), _types(new)
        if before and after:
            lost = before - after if is_body else after - before
            if lost and not ("number" in (after if is_body else before) and lost == {"integer"}):
                verb = "may no longer be" if is_body else "may be"
                yield self._said(where, f"{verb} {', '.join(sorted(lost))}")
        if is_body and "enum" in old and "enum" in new:
            for gone in [each for each in old["enum"] if each not in new["enum"]]:
                yield self._said(where, f"may no longer be {gone!r}")

    def _properties(
        self, old: Json, new: Json, where: str, *, is_body: bool, depth: int
    ) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        if before and after:
            for name in before.keys() - after.keys():
                yield self._said(f"{where}.{name}", "is gone")
        for name in before.keys() & after.keys():
            yield from self._schema(
                before[name], after[name], f"{where}.{name}", is_body=is_body, depth=depth
            )
        required = set(new.get("required", ())), set(old.get("required", ()))
        if not is_body:
            required = required[1], required[0]
        for name in (required[0] - required[1]) & (before.keys() & after.keys() | required[0]):
            if is_body:
                yield self._said(f"{where}.{name}", "is required now")
            elif name in after:
                yield self._said(f"{where}.{name}", "is not always there any more")

    def _choices(
        self, old: Json, new: Json, where: str, *, is_body: bool, depth: int
    ) -> Iterator[str]:
        """Yield the breaking changes of a union. Members with the same name are compared."""
        for word in ("anyOf", "oneOf", "allOf"):
            before = {_named(each): each for each in old.get(word, ())}
            after = {_named(each): each for each in new.get(word, ())}
            if not before or not after:
                continue
            for name in before.keys() - after.keys() if is_body else ():
                yield self._said(where, f"may no longer be {name}")
            for name in before.keys() & after.keys():
                yield from self._schema(
                    before[name], after[name], where, is_body=is_body, depth=depth
                )

    def _resolved(self, old: Any, new: Any) -> tuple[Any, Any]:
        return _resolve(self._old, old), _resolve(self._new, new)

    def _said(self, where: str, what: str) -> str:
        return f"{self._name}: {where} {what}"


def _resolve(document: Json, schema: Any) -> Any:
    while isinstance(schema, Mapping) and "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        schema = found
    return schema


def _types(schema: Json) -> set[str]:
    types = schema.get("type", ())
    return {types} if isinstance(types, str) else set(types)


def _named(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return str(schema)
    return str(schema.get("$ref") or schema.get("const") or schema.get("title") or _types(schema))
