"""Bodies of `/api/chat` and `/api/generate` as neutral requests."""

import json
from dataclasses import replace
from typing import Any

import pytest

from arriero.balancer.api.fields.field_table import FieldNotes
from arriero.balancer.api.ollama.requests import parse_chat, parse_generate
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    JsonSchemaGrammar,
    TextPart,
)

PNG = "iVBORw0KGgo"
USER = {"role": "user", "content": "Hi"}
ASKED = ChatMessage(role="user", content="Hi")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def chat(**body: Any) -> GenerateRequest:
    sent = {"model": "m", "messages": [USER]} | body
    requested = parse_chat(json.dumps(sent).encode())
    assert requested.request is not None
    return requested.request


def generate(**body: Any) -> GenerateRequest:
    requested = parse_generate(json.dumps({"model": "m", "prompt": "Hi"} | body).encode())
    assert requested.request is not None
    return requested.request


def test_a_chat() -> None:
    assert chat() == GenerateRequest(messages=(ASKED,))
    assert chat(stream=False).stream is False


def test_the_model_is_set_when_its_name_is_known() -> None:
    requested = parse_chat(json.dumps({"model": "m:latest", "messages": [USER]}).encode())
    assert requested.model == "m:latest"
    asked = requested.request_for("m")
    assert asked is not None
    assert asked.model == "m"


def test_options_are_passed_on() -> None:
    asked = chat(options={"num_predict": 4.0, "temperature": 0, "stop": "x", "top_k": -1})
    assert (asked.max_tokens, asked.temperature, asked.stop, asked.top_k) == (4, 0, ("x",), 0)


@pytest.mark.parametrize(
    ("format", "schema"),
    [("json", {"type": "object"}), (SCHEMA, SCHEMA), ({}, {})],
)
def test_a_format_is_a_grammar(format: object, schema: dict[str, Any]) -> None:
    grammar = JsonSchemaGrammar(type="json_schema", schema=schema)
    assert chat(format=format).grammar == grammar
    assert generate(format=format).grammar == grammar


@pytest.mark.parametrize("format", ["", None])
def test_no_format(format: object) -> None:
    assert chat(format=format).grammar is None


def test_thinking_is_on_off_or_of_a_degree() -> None:
    assert chat().thinking is None
    assert chat(think=False).thinking is False
    asked = chat(think="high")
    assert (asked.thinking, asked.chat_template_kwargs) == (True, {"reasoning_effort": "high"})


def test_tools_are_passed_on() -> None:
    tool = {"type": "function", "function": {"name": "now"}}
    assert chat(tools=[tool]).tools == (tool,)
    assert chat(tools=[]).tools is None


def test_log_probs() -> None:
    asked = chat(logprobs=True, top_logprobs=2)
    assert (asked.logprobs, asked.top_logprobs) == (True, 2)
    with pytest.raises(InvalidRequest, match="`top_logprobs` needs"):
        chat(top_logprobs=2)


def test_an_answer_that_was_begun_goes_on() -> None:
    begun = {"role": "assistant", "content": "Well, "}
    assert chat(messages=[USER, begun]).continue_final_message
    assert not chat(messages=[USER, begun | {"content": ""}]).continue_final_message


def test_a_prompt_is_a_conversation() -> None:
    assert generate() == GenerateRequest(messages=(ASKED,))
    system = ChatMessage(role="system", content="Be short.")
    assert generate(system="Be short.").messages == (system, ASKED)
    assert generate(system="").messages == (ASKED,)


def test_a_raw_prompt_is_text() -> None:
    assert generate(raw=True) == GenerateRequest(prompt="Hi")
    assert generate(suffix="!").suffix == "!"
    assert generate(suffix="!").prompt == "Hi"
    with pytest.raises(InvalidRequest) as refused:
        generate(raw=True, system="Be short.")
    assert refused.value.field == "system"


def test_pictures_come_before_the_text() -> None:
    url = ImageUrl(url=f"data:image/png;base64,{PNG}")
    content = (ImagePart(type="image_url", image_url=url), TextPart(type="text", text="Hi"))
    asked = ChatMessage(role="user", content=content)
    assert chat(messages=[USER | {"images": [PNG]}]).messages == (asked,)
    assert generate(images=[PNG]).messages == (asked,)
    assert generate(images=[PNG], prompt="").messages == (replace(asked, content=content[:1]),)


def test_with_nothing_to_answer_there_is_no_request() -> None:
    assert parse_chat(b'{"model": "m"}').request is None
    assert parse_chat(b'{"model": "m", "messages": [], "keep_alive": 0}').request is None
    assert parse_generate(b'{"model": "m"}').request_for("m") is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"options": {"temperature": -1}}, "options.temperature"),
        ({"options": 5}, "options"),
        ({"format": "yaml"}, "format"),
        ({"think": "very"}, "think"),
        ({"messages": [{"role": "nobody"}]}, "messages[0].role"),
        ({"messages": [USER, USER | {"images": ["aGk="]}]}, "messages[1].images[0]"),
        ({"messages": [USER | {"images": 5}]}, "messages[0].images"),
        ({"messages": [USER | {"images": [PNG] * 40}] * 2}, "messages"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat(**body)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"images": ["aGk="]}, "images[0]"),
        ({"images": [PNG], "raw": True}, "images"),
        ({"images": [PNG], "suffix": "!"}, "images"),
        ({"context": [1]}, "context"),
        ({"width": 8}, "width"),
    ],
)
def test_what_a_prompt_cannot_have_is_refused(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        generate(**body)
    assert refused.value.field == field


def test_what_has_no_effect_is_told() -> None:
    notes = FieldNotes()
    body = {
        "model": "m",
        "messages": [USER | {"images": []}],
        "keep_alive": "5m",
        "options": {"num_ctx": 4096, "numa": True, "made_up": 1, "num_keep": 4},
    }
    parse_chat(json.dumps(body).encode(), notes)
    assert notes.names == ("keep_alive", "options.num_ctx", "options.numa", "options.made_up")
    assert notes.labels == ("keep_alive", "options.num_ctx", "options.numa", "other")
