"""When edits are applied: their limits are in tokens, which agents count."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from arriero.balancer.api.anthropic.context_edits import CLEARED
from arriero.balancer.api.anthropic.editing import Edited, apply_edits
from arriero.balancer.api.anthropic.requests import parse_messages
from arriero.shared.inference import GenerateRequest
from tests.balancer.api.anthropic.test_context_edits import CALLS, THREE_TURNS

T = TypeVar("T")

THINKING = {"type": "clear_thinking_20251015"}
RESULTS = {"type": "clear_tool_uses_20250919"}


class Counter:
    """Counts characters of results and thoughts."""

    def __init__(self) -> None:
        self.num_counted = 0

    async def count(self, request: GenerateRequest) -> int:
        self.num_counted += 1
        messages = request.messages or ()
        texts = [m.content for m in messages if m.role == "tool" and m.content != CLEARED]
        thoughts = [message.reasoning_content or "" for message in messages]
        return sum(len(each) for each in (*texts, *thoughts) if isinstance(each, str))


async def at_once(work: Callable[[], T], /) -> T:
    return work()


async def edited(
    counter: Counter, conversation: list[dict[str, Any]], *edits: dict[str, Any]
) -> Edited:
    body = {"max_tokens": 5, "messages": conversation, "context_management": {"edits": edits}}
    wanted = parse_messages(json.dumps(body).encode())
    conversation = wanted.conversation()
    return await apply_edits(
        conversation.messages,
        wanted.edits,
        run=at_once,
        build=lambda messages: wanted.request(replace(conversation, messages=messages)),
        count=counter.count,
    )


async def test_what_clears_nothing_is_not_counted() -> None:
    counter = Counter()
    done = await edited(counter, CALLS, THINKING)
    assert (done.applied, done.num_tokens, counter.num_counted) == ([], None, 0)


async def test_edits_one_after_the_other() -> None:
    counter = Counter()
    keep = {"type": "tool_uses", "value": 1}
    trigger = {"type": "input_tokens", "value": 17}
    done = await edited(
        counter, THREE_TURNS, THINKING, {**RESULTS, "keep": keep, "trigger": trigger}
    )
    assert done.applied == [
        {
            "type": "clear_thinking_20251015",
            "cleared_thinking_turns": 2,
            "cleared_input_tokens": 6,
        },
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1, "cleared_input_tokens": 8},
    ]
    assert (done.original_tokens, done.num_tokens, counter.num_counted) == (24, 10, 3)
    results = [m.content for m in done.request.messages or () if m.role == "tool"]
    assert results == [CLEARED, "result b"]


@pytest.mark.parametrize(("value", "is_applied"), [(39, True), (40, False)])
async def test_a_trigger_in_tokens_has_to_be_exceeded(value: int, is_applied: bool) -> None:
    trigger = {"type": "input_tokens", "value": value}
    done = await edited(Counter(), CALLS, {**RESULTS, "trigger": trigger})
    assert (done.original_tokens, bool(done.applied)) == (40, is_applied)


@pytest.mark.parametrize(("value", "is_applied"), [(16, True), (17, False)])
async def test_an_edit_that_saves_too_little_is_not_applied(value: int, is_applied: bool) -> None:
    edit = {
        **RESULTS,
        "trigger": {"type": "tool_uses", "value": 3},
        "clear_at_least": {"type": "input_tokens", "value": value},
    }
    done = await edited(Counter(), CALLS, edit)
    assert bool(done.applied) is is_applied
    results = [m.content for m in done.request.messages or () if m.role == "tool"]
    assert results.count(CLEARED) == (2 if is_applied else 0)
