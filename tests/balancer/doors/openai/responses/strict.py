"""Checks against the official client's own models: no conversion, no member it does not know."""

from collections.abc import Iterable, Iterator
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

_event: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_response = TypeAdapter(Response)


def checked_event(event: dict[str, Any]) -> Any:
    """`event` as the client's model of it."""
    return known(_event.validate_python(event, strict=True))


def checked_response(response: dict[str, Any]) -> Response:
    return known(_response.validate_python(response, strict=True))


def known(model: Any) -> Any:
    strange = [(type(each).__name__, each.model_extra) for each in models(model)]
    assert not [each for each in strange if each[1]], strange
    return model


def models(value: object) -> Iterator[BaseModel]:
    """Every model within `value`."""
    if isinstance(value, BaseModel):
        yield value
        value = vars(value).values()
    elif isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for each in value:
            yield from models(each)
