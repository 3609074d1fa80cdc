"""Strict validation of bodies and messages, bounded in work.

A list of millions could have millions of faults. So the validation of a list ends at its first
wrong entry, and a map that is too long is refused before its entries are validated.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, PydanticKnownError

LAZY = ConfigDict(defer_build=True)
"""Builds the schema of a type at its first use, since building all at the start took a second."""

STRICT = ConfigDict(**LAZY, extra="forbid", strict=True, allow_inf_nan=False)
"""No unknown field, no conversion between types, no NaN or infinity."""

FROZEN = ConfigDict(**LAZY, extra="forbid", frozen=True)
"""An immutable model that is made of texts. Unknown fields are refused."""

T = TypeVar("T")


def constants(kind: type[T]) -> Iterator[T]:
    """Return the constants of `kind` in all imported modules of the project."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("arriero."):
            yield from (each for each in [*vars(module).values()] if isinstance(each, kind))


def build_schemas() -> None:
    """Build the schemas of all imported modules, which takes about a second.

    This does the same as `pydantic.FailFast`, but is hashable, so unions can contain it.
    """
    for adapter in constants(TypeAdapter):
        adapter.rebuild()
    for model in constants(type(BaseModel)):
        if model is not BaseModel:
            model.model_rebuild()


@dataclass(frozen=True)
class _FirstFault:
    """Ends the validation of a list at its first wrong entry.

    It does the same as `pydantic.FailFast`, but is hashable, so unions can contain it.
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
"""A list in foreign input. Set a `max_length` for it."""


def at_most(max_length: int) -> BeforeValidator:
    """Return a validator that first refuses maps of more than `max_length` entries."""

    def check(value: object) -> object:
        if isinstance(value, dict) and len(value) > max_length:
            context = {"field_type": "Map", "max_length": max_length, "actual_length": len(value)}
            raise PydanticKnownError("too_long", context)
        return value

    return BeforeValidator(check)
