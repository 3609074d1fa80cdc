"""Ollama's messages as neutral ones: what is renamed, and which call a result belongs to."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from arriero.balancer.api.ollama.conversation import Messages, to_neutral
from arriero.shared.inference import ChatMessage

_messages = TypeAdapter(Messages)


def neutral(*messages: dict[str, Any]) -> list[ChatMessage]:
    return list(to_neutral(_messages.validate_json(json.dumps(messages))))


def called(name: str, id: str | None = None, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments, "index": 0}
    return {"function": function} | ({} if id is None else {"id": id, "type": "function"})


def made(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_texts_stay_and_thinking_is_reasoning() -> None:
    assert neutral(
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?", "thinking": "hm"},
        {"role": "assistant", "thinking": ""},
    ) == [
        ChatMessage(role="system", content="Be short."),
        ChatMessage(role="user", content="Hi"),
        ChatMessage(role="assistant", content="Yes?", reasoning_content="hm"),
        ChatMessage(role="assistant", content=""),
    ]


@pytest.mark.parametrize(
    ("arguments", "kept"), [(None, "{}"), ("", ""), ('{"ci', '{"ci'), ([1], "[1]"), (7, "7")]
)
def test_arguments_of_any_kind_are_taken(arguments: object, kept: str) -> None:
    call = {"function": {"name": "sum", "arguments": arguments}}
    (message,) = neutral({"role": "assistant", "tool_calls": [call]})
    assert message.tool_calls == (made("call00001", "sum", kept),)


def test_calls_get_ids_and_results_find_them_by_name() -> None:
    calls = [called("sum", a=1), called("now")]
    asked, time, total = neutral(
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_name": "now", "content": "noon"},
        {"role": "tool", "content": "2"},
    )
    first, second = made("call00001", "sum", '{"a":1}'), made("call00002", "now", "{}")
    assert asked == ChatMessage(role="assistant", tool_calls=(first, second))
    assert (time.tool_call_id, time.name) == ("call00002", "now")
    assert (total.tool_call_id, total.name) == ("call00001", None)


def test_calls_of_one_tool_are_answered_in_their_order() -> None:
    result = {"role": "tool", "tool_name": "now", "content": "x"}
    turn = {"role": "assistant", "tool_calls": [called("now"), called("now")]}
    told = neutral(turn, result, result, result)
    assert [message.tool_call_id for message in told[1:]] == ["call00001", "call00002", None]


def test_ids_of_the_client_are_kept() -> None:
    turn = {"role": "assistant", "tool_calls": [called("now", "c-1"), called("now", "c-2")]}
    results = [
        {"role": "tool", "tool_call_id": "c-2", "content": "x"},
        {"role": "tool", "tool_name": "now", "content": "y"},
    ]
    asked, *told = neutral(turn, *results)
    assert asked.tool_calls is not None
    assert [call["id"] for call in asked.tool_calls] == ["c-1", "c-2"]
    assert [message.tool_call_id for message in told] == ["c-2", "c-1"]
