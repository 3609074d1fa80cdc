"""Summaries in place of what was said before."""

from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import to_json

from arriero.balancer.api.anthropic.conversation.blocks import Message
from arriero.balancer.api.anthropic.conversation.compaction import (
    HEADING,
    INSTRUCTIONS,
    Summarize,
    changes_in,
    from_summary,
    summarized,
    summary_of,
)
from arriero.balancer.api.anthropic.conversation.messages import to_messages

_messages: TypeAdapter[tuple[Message, ...]] = TypeAdapter(tuple[Message, ...])

USER = {"role": "user", "content": "hi"}
REMOVAL = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}


def messages(*given: dict[str, Any]) -> tuple[Message, ...]:
    return _messages.validate_json(to_json(given))


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def summary(content: str | None = "All of it.", **more: Any) -> dict[str, Any]:
    return {"type": "compaction", "content": content, **more}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def read(*given: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in to_messages(None, messages(*given))]


def test_what_was_said_before_is_left_out() -> None:
    assert read(USER, said(text("lo"), summary(), text("hello")), USER) == [
        ("user", f"{HEADING}\n\nAll of it."),
        ("assistant", "hello"),
        ("user", "hi"),
    ]


def test_a_summary_alone_begins_the_conversation() -> None:
    together = [("user", f"{HEADING}\n\nAll of it.\n\nhi")]
    assert read(said(summary()), USER) == together
    assert read({"role": "user", "content": [summary()]}, USER) == together


def test_the_last_summary_counts() -> None:
    given = messages(said(summary("one")), USER, said(summary("two"), summary("three")), USER)
    assert len(from_summary(given)) == 2
    assert read(said(summary("one")), USER, said(summary("two"))) == [("user", f"{HEADING}\n\ntwo")]


@pytest.mark.parametrize("content", [None, ""])
def test_a_summary_without_content_changes_nothing(content: str | None) -> None:
    given = (USER, said(summary(content), text("hello")), USER)
    assert read(*given) == [("user", "hi"), ("assistant", "hello"), ("user", "hi")]
    assert read(USER, said(summary(content)), USER) == [("user", "hi\n\nhi")]
    assert read({"role": "user", "content": [summary(content), text("hi")]}) == [("user", "hi")]


def test_instructions_of_the_request_replace_ours() -> None:
    assert Summarize(type="summarize").asked().content == INSTRUCTIONS
    assert Summarize(type="summarize", instructions=" \n").asked().content == INSTRUCTIONS
    assert Summarize(type="summarize", instructions="Short.").asked().content == "Short."


def test_a_summary_has_the_changes_of_tools() -> None:
    given = messages(USER, {"role": "system", "content": [REMOVAL, text("now")]})
    changes = summarized(given)
    assert changes == [REMOVAL]
    again = messages(said(summary(tool_changes=changes)), USER)
    assert list(changes_in(again)) == list(changes_in(given))
    assert summarized(messages(USER)) == []


def test_what_is_read_of_it() -> None:
    (message,) = messages(said(summary()))
    (block,) = message.content
    assert summary_of(block) == f"{HEADING}\n\nAll of it."  # type: ignore[arg-type]
