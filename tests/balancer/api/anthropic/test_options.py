"""Thinking and formats of answers."""

import pytest

from arriero.balancer.api.anthropic.options import (
    Format,
    OutputOptions,
    ThinkingOptions,
    grammar,
    priority_of,
    thinks,
    tier_of,
)
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage, JsonSchemaGrammar

QUESTION = (ChatMessage(role="user", content="hi"),)
RESULT = (*QUESTION, ChatMessage(role="tool", content="4", tool_call_id="t"))


def test_thinking_between_calls_of_tools() -> None:
    options = ThinkingOptions(type="between_tools")
    assert thinks(options, QUESTION) is False
    assert thinks(options, RESULT) is True


def test_whether_it_thinks() -> None:
    assert thinks(None, RESULT) is False
    assert thinks(ThinkingOptions(type="enabled"), QUESTION) is True
    assert thinks(ThinkingOptions(type="disabled"), QUESTION) is False
    assert thinks(ThinkingOptions(type="adaptive"), QUESTION) is None


def test_what_is_told_of_thinking() -> None:
    assert ThinkingOptions(type="enabled", display="omitted").is_hidden
    for display in (None, "summarized", "updates"):
        assert not ThinkingOptions(type="enabled", display=display).is_hidden


def test_either_field_has_the_format() -> None:
    some = Format(type="json_schema", schema={"type": "object"})
    other = Format(type="json_schema", schema={"type": "array"})
    expected = JsonSchemaGrammar(type="json_schema", schema={"type": "object"})
    assert grammar(OutputOptions(format=some), None) == expected
    assert grammar(OutputOptions(), some) == expected
    assert grammar(OutputOptions(format=some), some) == expected
    assert grammar(OutputOptions(), None) is None
    with pytest.raises(InvalidRequest) as caught:
        grammar(OutputOptions(format=some), other)
    assert caught.value.field == "output_format"


def test_tiers_are_classes() -> None:
    assert (priority_of("auto"), priority_of("standard_only")) == (None, 0)
    assert [tier_of(each) for each in (None, 0, 7, -7)] == [
        "standard",
        "standard",
        "priority",
        "batch",
    ]
