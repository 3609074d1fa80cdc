"""Checks against official clients' own models: no conversion, no member that they do not know."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pydantic import BaseModel, TypeAdapter


def checked(adapter: TypeAdapter[Any], value: object, *, ours: Collection[str] = ()) -> Any:
    """`value` as the client's model of it; the members `ours` may be there beyond it."""
    model = adapter.validate_python(value, strict=True)
    for each in _models(model):
        assert set(each.model_extra or ()) <= set(ours), (type(each), each.model_extra)
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
