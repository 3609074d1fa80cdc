"""Responses and their events as the official client's models know them."""

from typing import Any

from openai.types.responses import Response, ResponseItem, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.balancer.api.strict_models import checked

_event: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_response = TypeAdapter(Response)
_item: TypeAdapter[Any] = TypeAdapter(ResponseItem)


def checked_event(event: dict[str, Any]) -> Any:
    return checked(_event, event)


def checked_response(response: dict[str, Any]) -> Response:
    model: Response = checked(_response, response)
    return model


def checked_item(item: dict[str, Any]) -> Any:
    return checked(_item, item)
