"""The events of a streamed response are as their types say."""

from typing import get_args

import pytest
from jsonschema import ValidationError

from arriero.balancer.api.openai.responses.event_types import ResponseStreamEvent
from arriero.balancer.api.openai.responses.events import ResponseEvents
from arriero.balancer.api.openai.responses.requests import parse_response
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import (
    Done,
    Event,
    Failed,
    LogProb,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import TIMINGS
from tests.balancer.api.sent_events import sent_events

LIKELY = LogProb(5, b"a", -0.5)
EVENTS: list[Event] = [
    Token("hm", "reasoning"),
    Token("m", "reasoning"),
    Token("a", log_probs=(TokenLogProbs(LIKELY, (LIKELY,)),)),
    Token("b"),
    ToolCallStarted("c", "f"),
    Token('{"a":', "tool_call"),
    Token(" 1}", "tool_call"),
    ToolCall("c", "f", '{"a": 1}'),
]
ENDS: list[Event] = [
    Done("stop", Usage(), TIMINGS, "a"),
    Done("length", Usage(), TIMINGS, "a"),
    Failed(EngineFailed("broken")),
]
ECHO = parse_response(b'{"input": "hi", "metadata": {"a": "b"}}').echo("demo")


def renderer(*, is_background: bool = False) -> ResponseEvents:
    return ResponseEvents("1", created_at=5, echo=ECHO, is_background=is_background)


@pytest.mark.parametrize("end", ENDS, ids=str)
@pytest.mark.parametrize("is_background", [False, True])
def test_every_event_is_declared(end: Event, *, is_background: bool) -> None:
    for event in sent_events(renderer(is_background=is_background), [*EVENTS, end]):
        check(ResponseStreamEvent, event)


def test_every_declared_event_is_sent() -> None:
    sent = {
        event["type"]
        for end in ENDS
        for event in sent_events(renderer(is_background=True), [*EVENTS, end])
    }
    declared = {
        name
        for member in get_args(ResponseStreamEvent.__value__)
        for name in get_args(member.__annotations__["type"])
    }
    assert sent == declared


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.delta", "delta": "a", "sequence_number": 1},
        {"type": "error", "code": None, "message": "broken", "param": None},
    ],
)
def test_what_is_not_declared_is_seen(event: object) -> None:
    with pytest.raises(ValidationError):
        check(ResponseStreamEvent, event)
