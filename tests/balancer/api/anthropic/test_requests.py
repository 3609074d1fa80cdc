"""Bodies of `/v1/messages`: what they mean, and what is refused by name."""

import json
from dataclasses import replace
from typing import Any

import pytest
from anthropic.types import message_create_params
from hypothesis import given

from arriero.balancer.api.anthropic.requests import parse_count, parse_messages
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage, GenerateRequest, JsonSchemaGrammar, NamedTool
from tests.balancer.api.json_values import objects_like

USER = {"role": "user", "content": "hi"}
TOOL = {"name": "f", "description": "does f", "input_schema": {"type": "object"}}


def parse(**body: Any) -> GenerateRequest:
    least = {"model": "demo", "max_tokens": 5, "messages": [USER]}
    return parse_messages(json.dumps(least | body).encode()).request()


def test_the_least() -> None:
    assert parse() == GenerateRequest(
        messages=(ChatMessage(role="user", content="hi"),),
        model="demo",
        max_tokens=5,
        stream=False,
        thinking=False,
    )


def test_the_most() -> None:
    asked = parse(
        system="be kind",
        stream=True,
        stop_sequences=["END"],
        temperature=0.5,
        top_p=0.5,
        top_k=3,
        thinking={"type": "enabled", "budget_tokens": 1024},
        tools=[TOOL | {"type": "custom", "cache_control": {"type": "ephemeral"}}],
        tool_choice={"type": "none"},
        metadata={"user_id": "u"},
        service_tier="auto",
    )
    function = {"name": "f", "description": "does f", "parameters": {"type": "object"}}
    assert asked == GenerateRequest(
        messages=(
            ChatMessage(role="system", content="be kind"),
            ChatMessage(role="user", content="hi"),
        ),
        model="demo",
        max_tokens=5,
        stream=True,
        stop=("END",),
        temperature=0.5,
        top_p=0.5,
        top_k=3,
        thinking=True,
        tools=({"type": "function", "function": function},),
        tool_choice="none",
    )


@pytest.mark.parametrize(
    ("thinking", "neutral"),
    [(None, False), ({"type": "disabled"}, False), ({"type": "adaptive"}, None)],
)
def test_thinking(thinking: Any, neutral: bool | None) -> None:
    assert parse(thinking=thinking).thinking is neutral


@pytest.mark.parametrize(
    ("choice", "neutral"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "f"}, NamedTool(name="f")),
    ],
)
def test_choices_of_tools(choice: Any, neutral: Any) -> None:
    assert parse(tools=[TOOL], tool_choice=choice).tool_choice == neutral
    asked = parse(tools=[TOOL], tool_choice=choice | {"disable_parallel_tool_use": True})
    assert not asked.parallel_tool_calls


def test_formats() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    asked = parse(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert asked.grammar == JsonSchemaGrammar(type="json_schema", schema=schema)
    assert parse(output_config={}).grammar is None


def test_effort_is_told_to_the_template() -> None:
    asked = parse(output_config={"effort": "high"})
    assert asked.chat_template_kwargs == {"reasoning_effort": "high"}
    assert parse().chat_template_kwargs is None


def test_strict_tools() -> None:
    (tool,) = parse(tools=[TOOL | {"strict": True}]).tools or ()
    assert tool["function"]["strict"] is True


def test_an_answer_that_has_begun_goes_on() -> None:
    asked = parse(messages=[USER, {"role": "assistant", "content": "A slot"}])
    assert asked.continue_final_message
    assert not parse().continue_final_message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0]"),
        ({"messages": [USER, {"role": "assistant", "content": ""}]}, "messages"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "some"}}, "tool_choice"),
        ({"output_config": {"effort": "very"}}, "output_config.effort"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]},
            "messages[0].content[0]",
        ),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"thread": {"type": "continue"}}, "thread.previous_message_id"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**body)
    assert caught.value.field == field, caught.value.message


def test_tools_have_their_limit() -> None:
    with pytest.raises(InvalidRequest, match="`tools` must have at most 1024 entries"):
        parse(tools=[TOOL] * 1025)


def test_messages_have_their_limit() -> None:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    results = [{"type": "tool_result", "tool_use_id": "t"}] * 4096
    with pytest.raises(InvalidRequest, match="at most 4096"):
        parse(messages=[{"role": "assistant", "content": [use]}, {**USER, "content": results}])


def test_counting_needs_no_max_tokens() -> None:
    body = json.dumps({"model": "demo", "messages": [USER], "tools": [TOOL]}).encode()
    with pytest.raises(InvalidRequest):
        parse_messages(body)
    assert parse_count(body).request() == replace(parse(tools=[TOOL]), max_tokens=None)


def test_every_parameter_of_the_client_is_answered() -> None:
    for name in message_create_params.MessageCreateParamsBase.__annotations__:
        try:
            parse(**{name: {}})
        except InvalidRequest as error:
            assert "unknown field" not in error.message, name


LIKE = {
    "max_tokens": 5,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "system": [{"type": "text", "text": "be kind"}],
    "tools": [TOOL],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}


@given(objects_like(LIKE))
def test_any_body_is_taken_or_refused(body: dict[str, Any]) -> None:
    try:
        parse_messages(json.dumps(body).encode()).request()
    except InvalidRequest:
        return
