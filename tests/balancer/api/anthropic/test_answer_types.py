"""What the Messages API answers is as its types say."""

import pytest

from arriero.balancer.api.anthropic.answer_types import AnthropicError, MessageAnswer
from arriero.balancer.api.anthropic.errors import anthropic_error
from arriero.balancer.api.anthropic.events import MessageEvents
from arriero.shared.errors import QueueFull
from arriero.shared.inference import Done, Event, Token, ToolCall, ToolCallStarted, Usage
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import TIMINGS

EVENTS: list[Event] = [
    Token("hm", "reasoning"),
    Token("a"),
    ToolCallStarted("c", "f"),
    Token('{"a": 1}', "tool_call"),
    ToolCall("c", "f", '{"a": 1}'),
]


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "cancelled"])
@pytest.mark.parametrize("stop_string", [None, "END"])
def test_messages(reason: str, stop_string: str | None) -> None:
    message = MessageEvents("1", model="m", max_tokens=5)
    for event in [*EVENTS, Done(reason, Usage(), TIMINGS, "a", stop_string)]:
        message.take(event)
    assert [block["type"] for block in message.message["content"]] == [
        *("thinking", "text", "tool_use"),
    ]
    check(MessageAnswer, message.message)


def test_a_message_that_has_begun() -> None:
    check(MessageAnswer, MessageEvents("1", model="m", max_tokens=5).begin()[0]["message"])


def test_errors() -> None:
    check(AnthropicError, anthropic_error(QueueFull("later"), "r"))
