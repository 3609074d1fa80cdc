"""Messages and their events as the official client's models know them."""

from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from anthropic.types.shared import ErrorDetails, ErrorResponse
from pydantic import TypeAdapter

from tests.balancer.api.strict_models import checked

_event: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
_message = TypeAdapter(Message)
_beta_event: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)
_beta_message = TypeAdapter(BetaMessage)
_details: TypeAdapter[Any] = TypeAdapter(ErrorDetails)
_error = TypeAdapter(ErrorResponse)


def checked_event(event: dict[str, Any]) -> Any:
    """The client knows no model of pings, which it skips, and of errors, which it raises."""
    if event["type"] == "error":
        return checked_error(event)
    return event if event == {"type": "ping"} else checked(_event, event)


def checked_message(message: dict[str, Any]) -> Message:
    model: Message = checked(_message, message)
    return model


def checked_beta_event(event: dict[str, Any]) -> Any:
    """Likewise, with what betas add."""
    return event if event == {"type": "ping"} else checked(_beta_event, event)


def checked_beta_message(message: dict[str, Any]) -> BetaMessage:
    """Likewise, with what betas add."""
    model: BetaMessage = checked(_beta_message, message)
    return model


def checked_error(body: dict[str, Any]) -> ErrorResponse:
    model: ErrorResponse = checked(_error, body, ours=("details",))
    if (details := body["error"].get("details")) is not None:
        checked(_details, details)
    return model
