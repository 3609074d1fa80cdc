"""Messages that say something."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from arriero.balancer.api.common.field_names import FieldNames
from arriero.balancer.api.common.message_check import check_messages
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage

_message = TypeAdapter(ChatMessage)
CALL = {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}


def read(message: dict[str, Any]) -> ChatMessage:
    return _message.validate_json(json.dumps(message))


@pytest.mark.parametrize(
    "message",
    [
        *({"role": role, "content": ""} for role in ("system", "developer", "user", "assistant")),
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "assistant", "content": None},
        {"role": "tool", "tool_call_id": "c"},
    ],
)
def test_what_is_taken(message: dict[str, Any]) -> None:
    check_messages([read(message)])


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        *(
            ({"role": role}, "content` is missing: give a text, or a list of parts")
            for role in ("system", "developer", "user")
        ),
        ({"role": "user", "content": []}, "content` must have at least one entry, not []"),
        ({"role": "tool", "content": "x"}, "tool_call_id` is missing: give the id of the call"),
    ],
)
def test_what_is_refused(message: dict[str, Any], problem: str) -> None:
    """By the name that the client has for it."""
    messages = [read({"role": "user", "content": "x"}), read(message)]
    with pytest.raises(InvalidRequest) as caught:
        check_messages(messages, FieldNames({"messages": "requests[7].messages"}))
    assert caught.value.message.startswith(f"`requests[7].messages[1].{problem}")
    assert caught.value.message.startswith(f"`{caught.value.field}`")
