"""Responses and their events as the official client's models know them."""

from typing import Any

from openai.types.responses import Response, ResponseItem, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.balancer.api.strict_models import checked

_event: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_response = TypeAdapter(Response)
_item: TypeAdapter[Any] = TypeAdapter(ResponseItem)


OURS = ("presence_penalty", "frequency_penalty", "store")
"""What Open Responses demands of a response, and the client's model does not have."""


def checked_event(event: dict[str, Any]) -> Any:
    return checked(_event, event, ours=OURS)


def checked_response(response: dict[str, Any]) -> Response:
    model: Response = checked(_response, response, ours=OURS)
    return model


def checked_item(item: dict[str, Any]) -> Any:
    return checked(_item, item)
