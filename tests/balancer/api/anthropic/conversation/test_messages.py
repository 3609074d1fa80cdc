"""What a conversation of blocks means to a template."""

from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import to_json

from arriero.balancer.api.anthropic.conversation.blocks import Message
from arriero.balancer.api.anthropic.conversation.documents import Text
from arriero.balancer.api.anthropic.conversation.messages import to_messages
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage

_messages: TypeAdapter[tuple[Message, ...]] = TypeAdapter(tuple[Message, ...])


def neutral(*messages: Any, system: Any = None) -> tuple[ChatMessage, ...]:
    return to_messages(system, _messages.validate_json(to_json(messages)))


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def use(id: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "f", "input": input}


def result(id: str, content: Any = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def test_plain() -> None:
    assert neutral(
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": [text("a"), text("b")]},
        system="be kind",
    ) == (
        ChatMessage(role="system", content="be kind"),
        ChatMessage(role="user", content="hi"),
        ChatMessage(role="assistant", content="hello"),
        ChatMessage(role="user", content="a\n\nb"),
    )


def test_what_is_said_in_a_row_is_one_turn() -> None:
    said = [{"role": "user", "content": text} for text in "abc"]
    assert neutral(*said) == (ChatMessage(role="user", content="a\n\nb\n\nc"),)


def test_system() -> None:
    user = {"role": "user", "content": "hi"}
    (first, _) = neutral(user, system=(Text(text="a"), Text(text="b")))
    assert first == ChatMessage(role="system", content="a\n\nb")
    assert len(neutral(user, system="")) == 1
    assert neutral(user, {"role": "system", "content": "now"})[1].role == "system"


def test_tools() -> None:
    given = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                text("let me see"),
                use("t1", a=None),
                use("t2"),
            ],
        },
        {"role": "user", "content": [text("and?"), result("t1", [text("x")]), result("t2", None)]},
    ]
    calls = tuple(
        {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}
        for id, arguments in (("t1", '{"a":null}'), ("t2", "{}"))
    )
    assert neutral(*given) == (
        ChatMessage(role="user", content="hi"),
        ChatMessage(
            role="assistant", content="let me see", reasoning_content="hm", tool_calls=calls
        ),
        ChatMessage(role="tool", content="x", tool_call_id="t1"),
        ChatMessage(role="tool", content="", tool_call_id="t2"),
        ChatMessage(role="user", content="and?"),
    )


def test_a_call_alone_has_no_content() -> None:
    (said,) = neutral({"role": "assistant", "content": [use("t1")]})
    assert said.content is None


def test_a_result_needs_its_call() -> None:
    with pytest.raises(InvalidRequest) as caught:
        neutral({"role": "user", "content": [result("t9")]})
    assert caught.value.field == "messages[0].content"
    assert "'t9'" in caught.value.message


def test_documents_and_references_are_read() -> None:
    source = {"type": "text", "data": "Once.", "media_type": "text/plain"}
    document = {"type": "document", "source": source}
    reference = {"type": "tool_reference", "tool_name": "g"}
    told = neutral(
        {"role": "user", "content": [document, text("Who?")]},
        {"role": "assistant", "content": [use("t1")]},
        {"role": "user", "content": [result("t1", [text("Found:"), reference])]},
    )
    assert [message.content for message in told] == [
        "<document>\nOnce.\n</document>\n\nWho?",
        None,
        "Found:\n\n<tool_reference>g</tool_reference>",
    ]


def test_instructions_for_one_turn() -> None:
    user = {"role": "user", "content": "hi"}
    for clear_at, times in (("next_user_message", 0), ("never", 1), (None, 1)):
        system = {"role": "system", "content": "now", "clear_at": clear_at}
        roles = [message.role for message in neutral(user, system, user)]
        assert roles.count("system") == times
        assert [message.role for message in neutral(user, system)] == ["user", "system"]


def test_messages_that_only_change_tools_say_nothing() -> None:
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}
    for role in ("system", "user"):
        assert len(neutral({"role": role, "content": [removal]})) == 0


def test_a_result_after_a_summary_is_named_by_its_place() -> None:
    summary = {"role": "assistant", "content": [{"type": "compaction", "content": "All."}]}
    user = {"role": "user", "content": "hi"}
    with pytest.raises(InvalidRequest) as caught:
        neutral(user, summary, {"role": "user", "content": [result("t1")]})
    assert caught.value.field == "messages[2].content"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({}, "{}"),
        ({"input": None}, "{}"),
        ({"input": '{"ci'}, '{"ci'),
        ({"input": [1]}, "[1]"),
        ({"input": 7}, "7"),
    ],
)
def test_input_of_any_kind_is_taken(sent: dict[str, Any], kept: str) -> None:
    half = {"type": "tool_use", "id": "t1", "name": "f", **sent}
    (message,) = neutral({"role": "assistant", "content": [half]})
    function = {"name": "f", "arguments": kept}
    assert message.tool_calls == ({"id": "t1", "type": "function", "function": function},)
