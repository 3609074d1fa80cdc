"""What goes over a WebSocket of the Responses API."""

import json
from typing import Any

import pytest
from openai.types.responses import responses_client_event_param

from arriero.balancer.api.openai.responses.events import ResponseEvents
from arriero.balancer.api.openai.responses.requests import RESPONSE_FIELDS, parse_response
from arriero.balancer.api.openai.responses.socket_events import (
    AskedResponse,
    ResponseSteer,
    SocketWriting,
    error_frame,
    parse_event,
    steer_refusal,
)
from arriero.shared.errors import AgentLost, InvalidRequest, NotFound, QueueFull
from arriero.shared.inference import Begun, Event, Failed, Token, Waiting
from tests.balancer.api.fake_runtime import done
from tests.balancer.api.sdk_fields import unlisted_names


def event(**members: Any) -> bytes:
    return json.dumps({"type": "response.create", "input": "Hi"} | members).encode()


def writing(lane: str | None = None, ignored: tuple[str, ...] = ()) -> SocketWriting:
    echo = parse_response(b'{"input": "Hi"}').echo("demo")
    return SocketWriting(ResponseEvents("r1", created_at=5, echo=echo), lane, ignored)


def sent(to: SocketWriting, *events: Event) -> list[Any]:
    return [json.loads(frame) for each in events for frame in to.frames(each)]


def test_every_field_that_a_client_may_send_is_known() -> None:
    names = unlisted_names(RESPONSE_FIELDS, responses_client_event_param.ResponseCreate)
    assert {*names} <= {"type", "stream_id", "generate"}


def test_a_response_is_asked_for() -> None:
    asked = parse_event(event(stream_id="a", generate=False, background=False))
    assert isinstance(asked, AskedResponse)
    assert (asked.lane, asked.generates) == ("a", False)
    assert json.loads(asked.body) == {"input": "Hi", "background": False, "stream": True}


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"type": None}, "type"),
        ({"type": "session.update"}, "type"),
        ({"stream_id": 5}, "stream_id"),
        ({"stream_id": "x" * 201}, "stream_id"),
        ({"generate": "no"}, "generate"),
        ({"background": True}, "background"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_event(event(**members))
    assert caught.value.field == field


def test_events_are_those_of_a_stream_each_with_its_lane() -> None:
    events = sent(writing("a"), Begun(4, 0), Token("Hi"), done())
    assert [each["type"] for each in events] == [
        *("response.created", "response.in_progress", "response.output_item.added"),
        *("response.content_part.added", "response.output_text.delta"),
        *("response.output_text.done", "response.content_part.done"),
        *("response.output_item.done", "response.completed"),
    ]
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    assert {each["stream_id"] for each in events} == {"a"}
    assert "stream_id" not in sent(writing(), done())[0]


def test_fields_without_effect_are_told_once() -> None:
    first, *others = sent(writing(ignored=("max_tool_calls",)), Token("Hi"), done())
    assert first["ignored_fields"] == ["max_tool_calls"]
    assert not any("ignored_fields" in each for each in others)


def test_what_is_refused_has_a_status() -> None:
    assert sent(writing("a"), Waiting(1, "slot"), Failed(QueueFull("full"))) == [
        {
            "type": "error",
            "status": 503,
            "error": {
                "message": "full",
                "type": "server_error",
                "param": None,
                "code": "queue_full",
            },
            "stream_id": "a",
        }
    ]


def test_what_breaks_off_fails() -> None:
    *_, error, end = sent(writing(), Token("Hi"), Failed(AgentLost("gone")))
    assert (error["type"], error["status"], error["error"]["code"]) == ("error", 502, "agent_lost")
    assert end["type"] == "response.failed"
    assert end["sequence_number"] == error["sequence_number"] + 1


def test_a_response_to_continue_that_is_not_there() -> None:
    told = json.loads(error_frame(NotFound("no", field="previous_response_id"), None))
    assert (told["status"], told["error"]["code"]) == (400, "previous_response_not_found")


def test_nothing_is_steered() -> None:
    steering = parse_event(b'{"type": "response.steer", "input": "x", "previous_response_id": "r"}')
    assert isinstance(steering, ResponseSteer)
    told = json.loads(steer_refusal(steering))
    assert told["type"] == "response.steer.failed"
    assert told["error"]["code"] == "steering_not_supported"
    assert told["steer"] == {"input": "x", "previous_response_id": "r"}
