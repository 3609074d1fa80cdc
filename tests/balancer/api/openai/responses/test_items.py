"""What a conversation of items means to a template, and how items are shown."""

from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import to_json

from arriero.balancer.api.openai.responses.items import (
    FunctionCallOutput,
    InputFunctionCall,
    InputMessage,
    Item,
    Reasoning,
    items_of,
    plain_items,
    to_messages,
    with_ids,
)
from arriero.balancer.api.openai.responses.listing import listed
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage, ImagePart, ImageUrl, TextPart
from tests.balancer.api.openai.responses.strict import checked_item

_items: TypeAdapter[tuple[Item, ...]] = TypeAdapter(tuple[Item, ...])


def items(*given: object) -> tuple[Item, ...]:
    return _items.validate_json(to_json(plain_items(list(given))))


def call(id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": arguments}


def output(id: str, text: object = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": text}


def thought(text: str) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
    }


def said(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": text}


def neutral_call(id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({}, "{}"),
        ({"arguments": None}, "{}"),
        ({"arguments": ""}, ""),
        ({"arguments": '{"ci'}, '{"ci'),
        ({"arguments": {"a": None}}, '{"a":null}'),
        ({"arguments": [1]}, "[1]"),
    ],
)
def test_arguments_of_any_kind_are_taken(sent: dict[str, Any], kept: str) -> None:
    half = {"type": "function_call", "call_id": "c1", "name": "f", "status": "incomplete", **sent}
    (message,) = to_messages(None, items(half))
    assert message.tool_calls == (neutral_call("c1", kept),)


def test_text_alone_is_the_users() -> None:
    assert plain_items("hi") == [{"type": "message", "role": "user", "content": "hi"}]
    assert plain_items(7) == 7


def test_parts_are_joined() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert to_messages(None, items({"role": "user", "content": parts})) == (
        ChatMessage(role="user", content="a\nb"),
    )


def test_a_turn_of_the_model_is_one_message() -> None:
    given = items(
        said("hi", "user"), thought("hm"), said("ok"), call("c1"), call("c2"),
        output("c1", [{"type": "input_text", "text": "one"}]), output("c2", "two"), said("so"),
    )  # fmt: skip
    assert to_messages(None, given) == (
        ChatMessage(role="user", content="hi"),
        ChatMessage(
            role="assistant",
            content="ok",
            reasoning_content="hm",
            tool_calls=(neutral_call("c1"), neutral_call("c2")),
        ),
        ChatMessage(role="tool", content="one", tool_call_id="c1"),
        ChatMessage(role="tool", content="two", tool_call_id="c2"),
        ChatMessage(role="assistant", content="so"),
    )


def test_what_is_out_of_order_begins_another_message() -> None:
    given = items(said("a"), said("b"), call("c1"), thought("late"), said("c"))
    messages = to_messages(None, given)
    assert [(m.content, m.reasoning_content, bool(m.tool_calls)) for m in messages] == [
        ("a", None, False),
        ("b", None, True),
        ("c", "late", False),
    ]


def test_a_hidden_thought_is_known_by_its_summary() -> None:
    item = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "in short"}],
        "encrypted_content": "x",
        "content": None,
    }
    (message,) = to_messages(None, items(item))
    assert message.reasoning_content == "in short"


def test_instructions_come_first_and_join_the_systems() -> None:
    user = said("hi", "user")
    assert to_messages("be kind", items(user))[0] == ChatMessage(role="system", content="be kind")
    joined = to_messages("be kind", items(said("and short", "developer"), user))
    assert joined[0] == ChatMessage(role="system", content="be kind\n\nand short")
    assert len(joined) == 2


def test_a_result_needs_its_call() -> None:
    with pytest.raises(
        InvalidRequest, match="the output for call_id 'c2' has no function call before it"
    ):
        to_messages(None, items(call("c1"), output("c2")))


def test_an_answers_items_can_be_followed() -> None:
    text = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}
    given = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "content": [], "status": "completed"},
        {"id": "m", "type": "message", "role": "assistant", "status": "completed",
         "content": [text]},
        {**call("c1"), "id": "fc_1", "status": "completed"},
    ]  # fmt: skip
    reasoning, message, function = items_of(given)
    assert isinstance(reasoning, Reasoning)
    assert isinstance(message, InputMessage) and message.text == "hi"
    assert isinstance(function, InputFunctionCall)


def test_items_are_shown_as_the_client_knows_them() -> None:
    given = items(
        said("be kind", "system"), said("hi", "user"), thought("hm"), said("ok"), call("c1"),
        output("c1"),
    )  # fmt: skip
    numbered = with_ids(given, "r")
    shown = [listed(item) for item in numbered]
    assert [item["id"] for item in shown] == [
        "msg_r_in0", "msg_r_in1", "rs_1", "msg_r_in3", "fc_r_in4", "fco_r_in5",
    ]  # fmt: skip
    for item in shown:
        checked_item(item)
    assert shown[1]["content"] == [{"type": "input_text", "text": "hi"}]
    assert isinstance(numbered[-1], FunctionCallOutput)
    assert shown[-1]["output"] == "done"


URL = "data:image/png;base64,aGk="
PICTURE = {"type": "input_image", "image_url": URL}


def test_pictures_stand_where_they_were_sent() -> None:
    text = {"type": "input_text", "text": "see"}
    given = items({"role": "user", "content": [text, PICTURE]}, call("1"), output("1", [PICTURE]))
    asked, _, result = to_messages(None, given)
    part = ImagePart(type="image_url", image_url=ImageUrl(url=URL))
    assert asked.content == (TextPart(type="text", text="see"), part)
    assert result.content == (part,)
    shown = listed(with_ids(given, "r")[0])
    assert shown["type"] == "message"
    assert shown["content"] == [text, {**PICTURE, "detail": "auto"}]
    checked_item(shown)
