"""Responses and their events as the official client's models know them."""

from typing import Any

from openai.types.responses import Response, ResponseItem, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.balancer.api.strict_models import checked

_event: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_response = TypeAdapter(Response)
_item: TypeAdapter[Any] = TypeAdapter(ResponseItem)


OURS = ("presence_penalty", "frequency_penalty", "store", "name")
"""What documents demand and the client's models do not have: of a response, and of the end of a
call's arguments."""


def checked_event(event: dict[str, Any]) -> Any:
    return checked(_event, event, ours=OURS)


def checked_response(response: dict[str, Any]) -> Response:
    model: Response = checked(_response, response, ours=OURS)
    return model


def checked_item(item: dict[str, Any]) -> Any:
    return checked(_item, item)
