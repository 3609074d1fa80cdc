"""The events of a streamed message are as their types say."""

from typing import get_args

import pytest
from jsonschema import ValidationError

from arriero.balancer.api.anthropic.event_types import MessageStreamEvent
from arriero.balancer.api.anthropic.events import MessageEvents
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    Token,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import TIMINGS
from tests.balancer.api.sent_events import sent_events

EVENTS: list[Event] = [
    Begun(9, 4),
    Token("hm", "reasoning"),
    Token("m", "reasoning"),
    Token("a"),
    Token("b"),
    ToolCallStarted("c", "f"),
    Token('{"a":', "tool_call"),
    Token(" 1}", "tool_call"),
    ToolCall("c", "f", '{"a": 1}'),
]
ENDS: list[Event] = [Done("stop", Usage(), TIMINGS, "a"), Failed(EngineFailed("broken"))]
EDIT = {
    "type": "clear_tool_uses_20250919",
    "cleared_tool_uses": 1,
    "cleared_input_tokens": 7,
}


@pytest.mark.parametrize("end", ENDS, ids=str)
@pytest.mark.parametrize("context", [None, {"applied_edits": [EDIT]}])
def test_every_event_is_declared(end: Event, context: object) -> None:
    renderer = MessageEvents("1", model="m", max_tokens=5, context=context)
    for event in sent_events(renderer, [*EVENTS, end]):
        check(MessageStreamEvent, event)


@pytest.mark.parametrize("told", [[], EVENTS[:5]], ids=["nothing", "a summary"])
def test_a_summary_is_declared(told: list[Event]) -> None:
    renderer = MessageEvents("1", model="m", max_tokens=5, summarizes=[{"type": "tool_removal"}])
    for event in sent_events(renderer, [*told, ENDS[0]]):
        check(MessageStreamEvent, event)


def test_hidden_thinking_is_declared() -> None:
    renderer = MessageEvents("1", model="m", max_tokens=5, hides_thinking=True)
    for event in sent_events(renderer, [*EVENTS, ENDS[0]]):
        check(MessageStreamEvent, event)


def test_every_declared_event_is_sent() -> None:
    sent = set()
    for end in ENDS:
        renderer = MessageEvents("1", model="m", max_tokens=5)
        sent |= {event["type"] for event in sent_events(renderer, [*EVENTS, end])}
    declared = {
        name
        for member in get_args(MessageStreamEvent.__value__)
        for name in get_args(member.__annotations__["type"])
    }
    assert sent == declared


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
        {"type": "content_block_stop"},
        {"type": "message_stop", "more": 1},
    ],
)
def test_what_is_not_declared_is_seen(event: object) -> None:
    with pytest.raises(ValidationError):
        check(MessageStreamEvent, event)
