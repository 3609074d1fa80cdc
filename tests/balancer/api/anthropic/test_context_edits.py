"""Which thinking and which tool results leave a conversation."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from arriero.balancer.api.anthropic.context_edits import (
    CLEARED,
    ClearThinking,
    ClearToolUses,
    ContextManagement,
    EditedConversation,
)
from arriero.balancer.api.anthropic.conversation.blocks import Message
from arriero.balancer.api.anthropic.conversation.messages import to_messages
from arriero.balancer.api.anthropic.requests import parse_messages
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage

_messages: TypeAdapter[tuple[Message, ...]] = TypeAdapter(tuple[Message, ...])
_management = TypeAdapter(ContextManagement)


def user(*blocks: dict[str, Any] | str) -> dict[str, Any]:
    texts = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    return {"role": "user", "content": texts}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "s"}


def call(id: str, tool: str = "f") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": tool, "input": {"a": id}}


def result(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": f"result {id}"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def edited(conversation: list[dict[str, Any]], **edit: Any) -> EditedConversation | None:
    messages = _messages.validate_json(json.dumps(conversation))
    (requested,) = _management.validate_json(json.dumps({"edits": [edit]})).edits
    return requested.change(messages)


def neutral(change: EditedConversation | None) -> tuple[ChatMessage, ...]:
    assert change is not None
    return to_messages(None, change.messages)


def thoughts(change: EditedConversation | None) -> list[str | None]:
    return [each.reasoning_content for each in neutral(change) if each.role == "assistant"]


THREE_TURNS = [
    user("one"),
    said(thought("t1"), call("a")),
    user(result("a")),
    said(thought("t2"), text("done")),
    user("two"),
    said(thought("t3"), text("two")),
    user("three"),
    said(text("no thoughts")),
    user("four"),
    said(thought("t4"), call("b")),
    user(result("b")),
]


@pytest.mark.parametrize(
    ("keep", "left", "num_cleared"),
    [
        ({}, [None, None, None, None, "t4"], 2),
        ({"keep": {"type": "thinking_turns", "value": 2}}, [None, None, "t3", None, "t4"], 1),
    ],
)
def test_old_turns_lose_their_thinking(
    keep: dict[str, Any], left: list[str | None], num_cleared: int
) -> None:
    """A chain of calls is one turn, and turns without thinking do not count."""
    change = edited(THREE_TURNS, type="clear_thinking_20251015", **keep)
    assert thoughts(change) == left
    assert change is not None
    assert change.num_cleared == num_cleared


@pytest.mark.parametrize(
    "keep", ["all", {"type": "all"}, {"type": "thinking_turns", "value": 3}], ids=str
)
def test_what_is_kept_is_left_alone(keep: object) -> None:
    assert edited(THREE_TURNS, type="clear_thinking_20251015", keep=keep) is None


def test_a_message_of_thinking_alone_stays_a_message() -> None:
    conversation = [user("a"), said(thought("t")), user("b"), said(thought("u")), user("c")]
    change = edited(conversation, type="clear_thinking_20251015")
    assert [message.role for message in neutral(change)] == ["user", "assistant"] * 2 + ["user"]
    assert neutral(change)[1] == ChatMessage(role="assistant", content="")


CALLS = [
    user("go"),
    *[
        message
        for id, tool in (("a", "f"), ("b", "g"), ("c", "f"), ("d", "f"), ("e", "f"))
        for message in (said(call(id, tool)), user(result(id)))
    ],
]


def cleared(**options: Any) -> tuple[list[str], list[str]] | None:
    """The calls whose results, and those whose inputs were cleared."""
    change = edited(
        CALLS,
        type="clear_tool_uses_20250919",
        **{"trigger": {"type": "tool_uses", "value": 4}} | options,
    )
    if change is None:
        return None
    messages = neutral(change)
    results = [m.tool_call_id or "" for m in messages if m.role == "tool" and m.content == CLEARED]
    calls = [call for message in messages for call in message.tool_calls or ()]
    inputs = [each["id"] for each in calls if each["function"]["arguments"] == "{}"]
    assert change.num_cleared == len(results)
    return results, inputs


def test_old_results_are_cleared() -> None:
    assert cleared() == (["a", "b"], [])
    assert cleared(keep={"type": "tool_uses", "value": 1}) == (["a", "b", "c", "d"], [])
    assert cleared(keep={"type": "tool_uses", "value": 0}) == (["a", "b", "c", "d", "e"], [])
    assert cleared(keep={"type": "tool_uses", "value": 5}) is None


def test_tools_can_be_excluded() -> None:
    assert cleared(exclude_tools=["g"]) == (["a"], [])
    assert cleared(exclude_tools=["f", "g"]) is None


def test_inputs_are_cleared_where_asked() -> None:
    assert cleared(clear_tool_inputs=True) == (["a", "b"], ["a", "b"])
    assert cleared(clear_tool_inputs=["g"]) == (["a", "b"], ["b"])
    assert cleared(clear_tool_inputs=False) == (["a", "b"], [])


def test_a_trigger_in_tool_uses() -> None:
    assert cleared(trigger={"type": "tool_uses", "value": 5}) is None


def test_a_call_without_result_does_not_count() -> None:
    conversation = [*CALLS, said(call("open"))]
    change = edited(
        conversation,
        type="clear_tool_uses_20250919",
        trigger={"type": "tool_uses", "value": 5},
    )
    assert change is None


def test_limits_in_tokens() -> None:
    edit = ClearToolUses(type="clear_tool_uses_20250919")
    assert (edit.above, edit.least) == (100_000, 0)
    assert ClearThinking(type="clear_thinking_20251015").above == -1


@pytest.mark.parametrize(
    ("edits", "named"),
    [
        ([{"type": "clear_everything"}], "context_management.edits[0].type"),
        ([{"type": "clear_thinking_20251015"}] * 2, "context_management.edits"),
        (
            [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": -1}}],
            "context_management.edits[0].keep.value",
        ),
    ],
)
def test_refused_by_name(edits: list[dict[str, Any]], named: str) -> None:
    body = {"max_tokens": 5, "messages": [user("a")], "context_management": {"edits": edits}}
    with pytest.raises(InvalidRequest) as caught:
        parse_messages(json.dumps(body).encode())
    assert caught.value.field == named
