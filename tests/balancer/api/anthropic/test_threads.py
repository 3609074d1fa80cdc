"""What a thread holds."""

import json
from typing import Any

import pytest

from arriero.balancer.api.anthropic.conversation.messages import to_messages
from arriero.balancer.api.anthropic.requests import MessagesRequest, parse_messages
from arriero.balancer.api.anthropic.threads import Thread, stored_thread
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage

USER = {"role": "user", "content": "hi"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def requested(**body: Any) -> MessagesRequest:
    least = {"max_tokens": 5, "messages": [USER], "thread": {"type": "create"}}
    return parse_messages(json.dumps(least | body).encode())


def begun(answer: str = "hello", **body: Any) -> Thread:
    conversation = requested(**body).conversation()
    return stored_thread(conversation, [{"type": "text", "text": answer}], 100)


def test_a_thread_goes_on_with_its_tools_and_instructions() -> None:
    thread = begun(system="be kind", tools=[TOOL])
    more = requested(messages=[{"role": "user", "content": "and?"}], tool_choice={"type": "any"})
    request = more.request(more.conversation(thread.conversation))
    assert [(m.role, m.content) for m in request.messages or ()] == [
        ("system", "be kind"),
        ("user", "hi"),
        ("assistant", "hello"),
        ("user", "and?"),
    ]
    assert request.tools is not None
    assert request.tool_choice == "required"


def test_the_result_of_a_call_in_the_thread() -> None:
    conversation = requested(tools=[TOOL]).conversation()
    call: Any = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    thread = stored_thread(conversation, [call], 100)
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    more = requested(messages=[{"role": "user", "content": [result]}])
    messages = more.request(more.conversation(thread.conversation)).messages or ()
    assert messages[-1] == ChatMessage(role="tool", content="1", tool_call_id="a")


def test_an_answer_that_went_on_from_a_beginning_is_one_message() -> None:
    start = {"role": "assistant", "content": "hel"}
    thread = begun("lo", messages=[USER, start])
    messages = to_messages(None, thread.conversation.messages)
    assert [message.content for message in messages] == ["hi", "hello"]


def test_a_thread_counts_for_all_that_it_took() -> None:
    assert begun("x" * 1000).num_bytes > begun("x").num_bytes + 900 > 1000


@pytest.mark.parametrize("changed", [{"system": "be rude"}, {"tools": [TOOL | {"name": "g"}]}])
def test_instructions_and_tools_stay_the_same(changed: dict[str, Any]) -> None:
    thread = begun(system="be kind", tools=[TOOL])
    same = requested(system="be kind", tools=[TOOL])
    assert same.conversation(thread.conversation).tools == thread.conversation.tools
    with pytest.raises(InvalidRequest) as caught:
        requested(**changed).conversation(thread.conversation)
    assert caught.value.field == next(iter(changed))
