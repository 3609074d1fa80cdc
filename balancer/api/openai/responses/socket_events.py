"""Events on a WebSocket of the Responses API: the client's events, and answers as frames.

| `type` of a client's event | effect |
| --- | --- |
| `response.create` | asks for a response; its other members are those of a body over HTTP |
| `response.steer` | is refused with `response.steer.failed`: a running response cannot change |

A `response.create` may have a `stream_id`, which all events of its response repeat. Responses with
the same `stream_id`, and responses without one, run one after the other. With `generate: false`
only the input is computed, for responses that continue it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from .....shared.errors import InvalidRequest, NotFound, RequestError, status_of
from .....shared.inference import Begun, Event, Failed, Notice, Reading, Waiting
from ...common.body_fields import body_fields
from ..errors import ErrorFields, error_fields
from .events import ResponseEvents
from .items import Json

CREATE = "response.create"
STEER = "response.steer"

MAX_LANE_NAME = 200
"""Maximum characters of a `stream_id`."""

Lane = str | None
"""A `stream_id`; `None` for events without one."""


@dataclass(frozen=True, slots=True)
class AskedResponse:
    """A request for a response: its body, and the lane in which it runs.

    If `generates` is false, only the input is computed.
    """

    body: bytes
    lane: Lane
    generates: bool


@dataclass(frozen=True, slots=True)
class ResponseSteer:
    """A client's event that tries to change a running response."""

    steer: Mapping[str, Any]


def parse_event(message: bytes) -> AskedResponse | ResponseSteer:
    """Parse a client's event. Raises `InvalidRequest`."""
    event = body_fields(message)
    kind = event.pop("type", None)
    if kind == STEER:
        return ResponseSteer(event)
    if kind != CREATE:
        raise InvalidRequest(f"`type` must be {CREATE!r} or {STEER!r}", field="type")
    lane = event.pop("stream_id", None)
    if not isinstance(lane, str | None) or len(lane or "") > MAX_LANE_NAME:
        raise InvalidRequest(
            f"`stream_id` must be a text of at most {MAX_LANE_NAME} characters", field="stream_id"
        )
    generates = event.pop("generate", True)
    if not isinstance(generates, bool):
        raise InvalidRequest("`generate` must be true or false", field="generate")
    if event.get("background"):
        raise InvalidRequest(
            "`background`: a response over a WebSocket ends with the connection; for a "
            "response in the background use POST /v1/responses",
            field="background",
        )
    event["stream"] = True  # which it is, whatever is said
    return AskedResponse(to_json(event), lane, generates)


class SocketWriting:
    """Writes the events of one response as frames of `lane`. `ignored` are fields without effect.

    Nothing is written until it is certain that the request is accepted.
    """

    def __init__(self, answer: ResponseEvents, lane: Lane, ignored: tuple[str, ...]) -> None:
        self._answer = answer
        self._lane = lane
        self._ignored = ignored
        self._has_begun = False

    def frames(self, event: Event) -> list[bytes]:
        """Return the frames of `event` for the client."""
        if isinstance(event, Waiting | Reading):
            return []
        if self._has_begun:
            return self._framed(self._answer.take(event), event)
        if isinstance(event, Failed):
            return [error_frame(event.error, self._lane)]
        if isinstance(event, Begun | Notice):
            self._answer.take(event)
            return []
        self._has_begun = True
        begun = self._answer.begin()
        if self._ignored:  # over HTTP a header says so
            begun[0]["ignored_fields"] = list(self._ignored)
        return self._framed([*begun, *self._answer.take(event)], event)

    def _framed(self, events: list[Json], event: Event) -> list[bytes]:
        return [self._frame(each, event) for each in events]

    def _frame(self, rendered: Json, event: Event) -> bytes:
        if rendered["type"] == "error" and isinstance(event, Failed):
            number = rendered["sequence_number"]
            return error_frame(event.error, self._lane, sequence_number=number)
        return to_json(_in_lane(rendered, self._lane))


def error_frame(error: RequestError, lane: Lane, *, sequence_number: int | None = None) -> bytes:
    """Return the frame for an error of a response or of a client's event."""
    fields: ErrorFields = error_fields(error)
    status = status_of(error)
    if isinstance(error, NotFound) and error.field == "previous_response_id":
        # Clients send the whole conversation again when they see this.
        fields["code"], status = "previous_response_not_found", 400
    event: Json = {"type": "error", "status": status, "error": fields}
    if sequence_number is not None:
        event["sequence_number"] = sequence_number
    return to_json(_in_lane(event, lane))


def steer_refusal(steering: ResponseSteer) -> bytes:
    """Return the refusal of an event to change a response, with the event's input."""
    return to_json(
        {
            "type": "response.steer.failed",
            "error": {
                "type": "invalid_request_error",
                "code": "steering_not_supported",
                "message": (
                    "a running response cannot be changed; send the input with the next "
                    "response.create"
                ),
            },
            "steer": steering.steer,
        }
    )


def _in_lane(event: Json, lane: Lane) -> Json:
    return event if lane is None else {**event, "stream_id": lane}
