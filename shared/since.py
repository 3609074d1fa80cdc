"""Fields added after version 0.1.0, and messages for peers that do not know them.

A later field is declared `Annotated[T | None, Since(n)] = None` in its dataclass, where `n` is the
version of the protocol that added it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Since:
    """The first version of the protocol that has the field."""

    version: int

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "since": self.version}


def without_newer(value: T, version: int) -> T:
    """Return `value` without fields, at any depth, that a peer of `version` does not know.

    If there are no such fields, the result is the same object.
    """
    if isinstance(value, tuple):
        parts = tuple(without_newer(each, version) for each in value)
        is_same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if is_same else parts  # type: ignore[return-value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    newer = _versions(type(value))
    changed = {}
    for each in fields(value):
        old = getattr(value, each.name)
        is_unknown = newer.get(each.name, version) > version
        if (new := None if is_unknown else without_newer(old, version)) is not old:
            changed[each.name] = new
    return replace(value, **changed) if changed else value


@cache
def _versions(kind: Any) -> Mapping[str, int]:
    """Return the versions of the later fields of `kind`. Raises `TypeError` for a required one."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for each in _marks(hint):
            found[name] = each.version
            if kind.__dataclass_fields__[name].default is not None:
                raise TypeError(f"{kind.__name__}.{name} came later, so its default must be None")
    return found


def _marks(hint: Any) -> list[Since]:
    is_annotated = get_origin(hint) is Annotated
    return [each for each in get_args(hint) if isinstance(each, Since)] if is_annotated else []
