from typing import Any

import pytest

from arriero.client.answers import (
    Done,
    Event,
    Failed,
    Timings,
    Token,
    ToolCall,
    ToolCallStarted,
    Usage,
    Waiting,
    Warned,
    answer_of,
    event_of,
    put_together,
)

DONE: dict[str, Any] = {
    "event": "done",
    "id": "r",
    "finish_reason": "stop",
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "brand_new": 1},
    "timings": {"total_ms": 5.5},
    "agent": "a",
}
END = Done(
    finish_reason="stop",
    usage=Usage(prompt_tokens=3, completion_tokens=2),
    timings=Timings(total_ms=5.5),
    agent="a",
)
CALL = {"id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("body", "event"),
    [
        ({"event": "token", "kind": "content", "text": "x"}, Token(text="x")),
        (
            {"event": "token", "kind": "reasoning", "text": "x", "item": "1"},
            Token(text="x", kind="reasoning", item="1"),
        ),
        (
            {"event": "tool_call_started", "call": {"id": "c", "name": "f"}},
            ToolCallStarted(call_id="c", name="f"),
        ),
        ({"event": "tool_call", "call": CALL}, ToolCall(call_id="c", name="f", arguments="{}")),
        ({"event": "warning", "code": "w", "message": "m"}, Warned(code="w", message="m")),
        (
            {"event": "waiting", "position": 2, "for": "model", "reason": "it loads"},
            Waiting(position=2, what="model", reason="it loads"),
        ),
        (DONE, END),
        ({"event": "brand_new"}, None),
    ],
)
def test_each_event(body: dict[str, Any], event: Event | None) -> None:
    assert event_of(body) == event


def test_an_error_is_one_that_can_be_raised() -> None:
    error = {"code": "agent_lost", "message": "gone", "retryable": True}
    failed = event_of({"event": "error", "id": "r", "error": error})
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.error.is_retryable) == ("agent_lost", True)
    assert (failed.error.request_id, str(failed.error)) == ("r", "gone (agent_lost)")


def test_whole_and_streamed_answers_are_alike() -> None:
    body = DONE | {
        "text": "ab",
        "reasoning": "hm",
        "tool_calls": [CALL],
        "warnings": [{"code": "w", "message": "m"}],
    }
    events: list[Event] = [
        Token(text="hm", kind="reasoning"),
        Token(text="a"),
        Warned(code="w", message="m"),
        Token(text="b"),
        Token(text="{}", kind="tool_call"),
        ToolCall(call_id="c", name="f", arguments="{}"),
        END,
    ]
    assert put_together("r", events) == answer_of(body)


def test_an_answer_without_an_end_is_none() -> None:
    with pytest.raises(ValueError, match="no end"):
        put_together("r", [Token(text="a")])
