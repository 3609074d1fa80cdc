"""Strict checks for bodies and messages, bounded in work.

A list of millions could have millions of findings. So the check of a list ends at its first wrong
entry, and a map that is too long is refused before its entries are checked.
"""

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from pydantic import BeforeValidator, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""No field we do not know, no conversion between types, no NaN or infinity."""

T = TypeVar("T")


@dataclass(frozen=True)
class _FirstFault:
    """Ends the check of a list at its first wrong entry.

    Does what `pydantic.FailFast` does, but is hashable, so unions can contain it.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema: Any = handler(source)
        if schema["type"] not in ("tuple", "list"):
            raise TypeError(f"only lists have a first wrong entry, not {source}")
        schema["fail_fast"] = True
        return cast("CoreSchema", schema)


ListOf = Annotated[tuple[T, ...], _FirstFault()]
"""A list from outside. Give it a `max_length`."""


def at_most(max_length: int) -> BeforeValidator:
    """Refuses a map with more than `max_length` entries before any of them is checked."""

    def check(value: object) -> object:
        if isinstance(value, dict) and len(value) > max_length:
            context = {"field_type": "Map", "max_length": max_length, "actual_length": len(value)}
            raise PydanticKnownError("too_long", context)
        return value

    return BeforeValidator(check)
