"""Checks against official clients' own models: no conversion, no member that they do not know."""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, TypeAdapter


def checked(adapter: TypeAdapter[Any], value: object) -> Any:
    """`value` as the client's model of it."""
    model = adapter.validate_python(value, strict=True)
    strange = [(type(each).__name__, each.model_extra) for each in _models(model)]
    assert not [each for each in strange if each[1]], strange
    return model


def _models(value: object) -> Iterator[BaseModel]:
    """Every model within `value`."""
    if isinstance(value, BaseModel):
        yield value
        value = vars(value).values()
    elif isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for each in value:
            yield from _models(each)
