"""Bodies of `/v1/messages`: what they mean, and what is refused by name."""

import json
from dataclasses import replace
from typing import Any

import pytest
from anthropic.types import message_create_params
from hypothesis import given

from arriero.balancer.api.anthropic.conversation.compaction import INSTRUCTIONS
from arriero.balancer.api.anthropic.fields import SCREEN_TOOLS, SERVER_BLOCKS, SERVER_TOOLS
from arriero.balancer.api.anthropic.requests import parse_count, parse_messages
from arriero.balancer.api.fields.field_table import OTHER, FieldNotes
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    JsonSchemaGrammar,
    NamedTool,
    TextPart,
)
from tests.balancer.api.json_values import objects_like

USER = {"role": "user", "content": "hi"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": ""}
SUMMARIZE = {"type": "summarize"}
FORMAT = {"type": "json_schema", "schema": {"type": "object"}}
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
        service_tier="standard_only",
    )
    function = {"name": "f", "description": "does f", "parameters": {"type": "object"}}
    assert asked == GenerateRequest(
        messages=(
            ChatMessage(role="system", content="be kind"),
            ChatMessage(role="user", content="hi"),
        ),
        model="demo",
        max_tokens=5,
        priority=0,
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
    older = {"type": "json_schema", "schema": schema}
    assert parse(output_format=older) == asked
    assert parse(output_format=older, output_config={"format": older}) == asked
    with pytest.raises(InvalidRequest, match="`output_format` must be left out, or be the same"):
        parse(output_format=FORMAT, output_config={"format": older})


def test_no_tokens_fill_the_cache() -> None:
    asked = parse(max_tokens=0)
    assert (asked.prefill_only, asked.max_tokens) == (True, None)


def told(**body: Any) -> tuple[GenerateRequest, tuple[str, ...]]:
    notes = FieldNotes()
    least = {"model": "demo", "max_tokens": 5, "messages": [USER]}
    return parse_messages(json.dumps(least | body).encode(), notes).request(), notes.names


def test_tools_of_servers_and_screens_are_left_out_and_told() -> None:
    for kind in (*SERVER_TOOLS, *SCREEN_TOOLS, "web_search_29990101"):
        asked, names = told(tools=[{"type": kind, "name": "x", "max_uses": 1}, TOOL])
        assert names == (f"tools[].type={kind}",)
        assert asked == parse(tools=[TOOL])


def test_a_tool_that_is_not_known_is_no_label_of_a_metric() -> None:
    notes = FieldNotes()
    body = {"max_tokens": 5, "messages": [USER], "tools": [{"type": "x_1"}]}
    parse_messages(json.dumps(body).encode(), notes)
    assert notes.labels == (OTHER,)


def test_tools_that_clients_run_are_functions() -> None:
    asked, names = told(tools=[{"type": "bash_20250124", "name": "bash", "cache_control": {}}])
    (tool,) = asked.tools or ()
    assert tool["function"]["name"] == "bash"
    assert set(tool["function"]["parameters"]["properties"]) == {"command", "restart"}
    assert names == ("tools[].cache_control",)


def test_changes_of_tools() -> None:
    def change(kind: str, **tool: Any) -> dict[str, Any]:
        return {"type": f"tool_{kind}", "tool": tool}

    added = change("addition", type="tool_definition", definition=TOOL | {"name": "g"})
    searching = {"type": "web_search_20250305", "name": "web_search"}
    left_out = change("addition", type="tool_definition", definition=searching)
    removed = change("removal", type="tool_reference", name="f")
    messages = [USER, {"role": "system", "content": [added, left_out, removed]}]
    asked, names = told(tools=[TOOL], messages=messages)
    assert [tool["function"]["name"] for tool in asked.tools or ()] == ["g"]
    assert [message.role for message in asked.messages or ()] == ["user"]
    assert names == ("messages[].content[].tool.definition.type=web_search_20250305",)


def test_a_conversation_to_summarize() -> None:
    asked = parse(
        tools=[TOOL],
        thinking={"type": "adaptive"},
        compaction=SUMMARIZE | {"instructions": "In one word."},
    )
    assert asked == parse(messages=[{"role": "user", "content": "hi\n\nIn one word."}])
    for blank in (None, " "):
        (message,) = parse(compaction=SUMMARIZE | {"instructions": blank}).messages or ()
        assert message.text == f"hi\n\n{INSTRUCTIONS}"


def test_a_conversation_to_summarize_is_counted_as_it_is() -> None:
    body = {"messages": [USER], "compaction": SUMMARIZE}
    (message,) = parse_count(json.dumps(body).encode()).request().messages or ()
    assert message.text == "hi"


@pytest.mark.parametrize(
    ("block", "field", "message"),
    [
        ({"type": "image", "source": {"type": "file"}}, ".source", "not stored"),
        (
            {"type": "image", "source": {"type": "url", "url": ""}},
            ".source",
            "only links to pictures",
        ),
        ({"type": "container_upload", "file_id": "f"}, "", "not stored"),
        (
            {"type": "document", "source": {"type": "url", "url": ""}},
            ".source",
            "only links to pictures",
        ),
        ({"type": "document", "source": {"type": "file", "file_id": ""}}, ".source", "not stored"),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}},
            ".source.content[0]",
            "only in messages",
        ),
    ],
)
def test_media_are_refused_with_the_reason(block: Any, field: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(messages=[{"role": "user", "content": [block]}])
    assert caught.value.field == f"messages[0].content[0]{field}.type"
    assert message in caught.value.message


PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
}
PART = ImagePart(type="image_url", image_url=ImageUrl(url="data:image/png;base64,aGk="))


def says(text: str) -> TextPart:
    return TextPart(type="text", text=text)


def test_pictures_stand_between_paragraphs() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, PICTURE]
    asked = parse(messages=[USER, {"role": "user", "content": [*content, *content]}])
    (message,) = asked.messages or ()
    assert message.content == (says("hi\n\na\n\nb"), PART, says("a\n\nb"), PART)
    (only,) = parse(messages=[{"role": "user", "content": [PICTURE]}]).messages or ()
    assert only.content == (PART,)


def test_results_of_tools_may_have_pictures() -> None:
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [PICTURE]}
    messages = [
        USER,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    asked = parse(messages=messages)
    (*_, told_back) = asked.messages or ()
    assert (told_back.role, told_back.content) == ("tool", (PART,))


def test_what_another_services_tools_did_is_left_out() -> None:
    text = {"type": "text", "text": "Sunny."}
    for kind in SERVER_BLOCKS:
        said = {"role": "assistant", "content": [{"type": kind, "id": "s"}, text]}
        asked, names = told(messages=[USER, said, USER])
        assert names == (f"messages[].content[].type={kind}",)
        assert [message.content for message in asked.messages or ()] == ["hi", "Sunny.", "hi"]


def test_edits_that_are_not_carried_out_are_told() -> None:
    edits = {"edits": [{"type": "compact_20260112", "trigger": None}]}
    _, names = told(context_management=edits)
    assert names == ("context_management.edits[].type=compact_20260112",)


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
        ({"max_tokens": -1}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "assistant", "content": ""}]}, "messages"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"output_config": {"effort": "very"}}, "output_config.effort"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0].source.type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": PDF}]}]},
            "messages[0].content[0].source",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]},
            "messages[0].content[0].type",
        ),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
        ({"tools": [{"type": "bash_20250124"}]}, "tools[0].name"),
        (
            {"tools": [{"type": "web_search_20250305"}], "tool_choice": {"type": "any"}},
            "tool_choice",
        ),
        ({"output_format": {"type": "json"}}, "output_format.type"),
        ({"compaction": SUMMARIZE, "stop_sequences": ["a"]}, "stop_sequences"),
        ({"compaction": SUMMARIZE, "context_management": {"edits": []}}, "context_management"),
        ({"compaction": SUMMARIZE, "output_config": {"format": FORMAT}}, "output_config.format"),
        ({"compaction": SUMMARIZE, "output_format": FORMAT}, "output_format"),
        ({"compaction": SUMMARIZE, "tool_choice": {"type": "any"}, "tools": [TOOL]}, "tool_choice"),
        ({"messages": [{"role": "system", "content": []}]}, "messages"),
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


def test_no_list_stands_for_the_members_of_a_schema() -> None:
    """PHP writes an object without members as a list."""
    schema = {"type": "object", "properties": []}
    (tool,) = parse(tools=[{"name": "f", "input_schema": schema}]).tools or ()
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}
