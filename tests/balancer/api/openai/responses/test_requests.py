"""Bodies of `/v1/responses`: what they mean, and what is refused by name."""

import json
from typing import Any

import pytest
from hypothesis import given
from openai.types.responses import response_create_params

from arriero.balancer.api.openai.responses.events import ResponseEvents
from arriero.balancer.api.openai.responses.items import InputMessage
from arriero.balancer.api.openai.responses.requests import ResponsesRequest, parse_response
from arriero.shared.errors import InvalidRequest, RequestError
from arriero.shared.inference import ChatMessage, GenerateRequest, JsonSchemaGrammar, NamedTool
from tests.balancer.api.json_values import objects_like
from tests.balancer.api.openai.responses.strict import checked_response

TOOL = {"type": "function", "name": "f", "description": "does f", "parameters": {"type": "object"}}


def parse(**body: Any) -> ResponsesRequest:
    return parse_response(json.dumps({"input": "hi"} | body).encode())


def request(**body: Any) -> GenerateRequest:
    return parse(**body).request(())


def test_the_least() -> None:
    requested = parse()
    assert requested.request(()) == GenerateRequest(
        messages=(ChatMessage(role="user", content="hi"),), stream=False
    )
    assert (requested.stream, requested.store, requested.previous_response_id) == (
        False,
        True,
        None,
    )


def test_one_in_the_background_may_be_streamed_later() -> None:
    assert request(background=True).stream
    assert not parse(background=True).stream


def test_the_most() -> None:
    asked = request(
        instructions="be kind",
        max_output_tokens=5,
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        repeat_penalty=1.5,
        presence_penalty=1,
        frequency_penalty=-1,
        seed=2**32 - 1,
        stop="END",
        ignore_eos=True,
        model="demo",
        stream=True,
        tools=[TOOL | {"strict": True}],
        tool_choice="none",
        reasoning={"effort": "high", "summary": "auto"},
    )
    assert asked == GenerateRequest(
        messages=(
            ChatMessage(role="system", content="be kind"),
            ChatMessage(role="user", content="hi"),
        ),
        max_tokens=5,
        temperature=0.0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        repeat_penalty=1.5,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        seed=2**32 - 1,
        stop=("END",),
        ignore_eos=True,
        model="demo",
        thinking=True,
        chat_template_kwargs={"reasoning_effort": "high"},
        tools=(
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "does f",
                    "parameters": {"type": "object"},
                    "strict": True,
                },
            },
        ),
        tool_choice="none",
    )


SCHEMA = {"type": "object", "properties": {"a": {"type": "null"}}}


@pytest.mark.parametrize(
    ("format", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, SCHEMA),
    ],
)
def test_formats(format: Any, schema: Any) -> None:
    requested = parse(text={"format": format})
    grammar = requested.request(()).grammar
    assert grammar == (schema and JsonSchemaGrammar(type="json_schema", schema=schema))
    response = checked_response(
        ResponseEvents("r", created_at=1, echo=requested.echo("m")).response
    )
    assert response.text is not None and response.text.format is not None
    assert response.text.format.model_dump(exclude_none=True, by_alias=True) == format


@pytest.mark.parametrize(
    ("choice", "neutral"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ({"type": "function", "name": "f"}, NamedTool(name="f")),
    ],
)
def test_choices_of_tools(choice: Any, neutral: Any) -> None:
    requested = parse(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    asked = requested.request(())
    assert (asked.tool_choice, asked.parallel_tool_calls) == (neutral, False)
    response = checked_response(
        ResponseEvents("r", created_at=1, echo=requested.echo("m")).response
    )
    assert response.parallel_tool_calls is False
    told = response.tool_choice
    assert (told if isinstance(told, str) else told.model_dump()) == choice


@pytest.mark.parametrize(
    ("reasoning", "thinking"),
    [
        (None, None),
        ({}, None),
        ({"effort": None}, None),
        ({"effort": "none"}, False),
        ({"effort": "minimal"}, True),
    ],
)
def test_effort(reasoning: Any, thinking: bool | None) -> None:
    assert request(reasoning=reasoning).thinking is thinking


@pytest.mark.parametrize(
    ("body", "num_top"),
    [
        ({"include": ["message.output_text.logprobs"]}, None),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, 2),
        ({"top_logprobs": 3}, 3),
    ],
)
def test_log_probabilities(body: dict[str, Any], num_top: int | None) -> None:
    asked = request(**body)
    assert (asked.logprobs, asked.top_logprobs) == (True, num_top)
    assert not request().logprobs


def test_a_cache_key_is_passed_on() -> None:
    assert request(prompt_cache_key="session 7").prompt_cache_key == "session 7"
    assert request(prompt_cache_key=None).prompt_cache_key is None


def test_history_comes_before() -> None:
    before = parse(input=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    messages = parse().request(before.input).messages
    assert [message.content for message in messages or ()] == ["a", "b", "hi"]


@pytest.mark.parametrize(
    "body",
    [
        {"background": False},
        {"store": False, "include": ["reasoning.encrypted_content"]},
        {"truncation": "disabled", "top_logprobs": 0, "parallel_tool_calls": None},
        {"user": "u", "metadata": {"a": "b"}, "service_tier": "auto", "safety_identifier": "s"},
        {"text": {"format": {"type": "text"}}},
        {"stream_options": {"include_obfuscation": False}, "max_tool_calls": 3},
        {"conversation": None, "prompt": None, "temperature": None},
    ],
)
def test_what_asks_for_nothing_is_taken(body: dict[str, Any]) -> None:
    assert request(**body) == request()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"background": True, "store": False}, "background"),
        ({"conversation": "c", "previous_response_id": "resp_1"}, "conversation"),
        ({"conversation": "c", "background": True}, "conversation"),
        ({"conversation": {}}, "conversation.id"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"include": ["everything"]}, "include[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_object"}}, "ignore_eos": True}, "text.format"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"input": [{"role": "tool", "content": ""}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].image_url",
        ),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**body)
    assert caught.value.field == field, caught.value.message


@pytest.mark.parametrize("body", [{"input": []}, {"input": None}])
def test_something_must_have_been_said(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="`input` is missing"):
        request(**body)


def test_tools_have_their_limit() -> None:
    with pytest.raises(InvalidRequest, match="`tools` must have at most 1024 entries"):
        parse(tools=[TOOL] * 1025)


def test_a_conversation_has_its_limit() -> None:
    long = parse(input=[{"role": "user", "content": ""}] * 4096).input
    with pytest.raises(InvalidRequest, match="4097 messages"):
        parse().request(long)


def test_every_parameter_of_the_client_is_answered() -> None:
    """None is unknown: it is served, ignored, or refused as what it is."""
    for name in response_create_params.ResponseCreateParamsBase.__annotations__:
        try:
            parse(**{name: {}})
        except InvalidRequest as error:
            assert "unknown field" not in error.message, name


def test_what_the_response_repeats_is_as_the_client_knows_it() -> None:
    echo = parse(tools=[TOOL], reasoning={"effort": "low"}, temperature=0.5).echo("demo")
    response = checked_response(ResponseEvents("r", created_at=1, echo=echo).response)
    assert response.tools[0].model_dump(exclude_none=True) == TOOL
    assert response.temperature == 0.5
    assert response.reasoning is not None and response.reasoning.effort == "low"


LIKE = {
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    "model": "demo",
    "instructions": "be kind",
    "tools": [TOOL],
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "metadata": {"a": "b"},
    "stream": True,
}


@given(objects_like(LIKE))
def test_any_body_is_taken_or_refused(body: dict[str, Any]) -> None:
    try:
        requested = parse_response(json.dumps(body).encode())
        requested.request(())
    except RequestError as error:
        assert isinstance(error, InvalidRequest)
    else:
        checked_response(ResponseEvents("r", created_at=1, echo=requested.echo("m")).response)


NAMESPACE = {"type": "namespace", "name": "crm", "description": "customers", "tools": [TOOL]}


def test_tools_that_are_no_functions_are_left_out() -> None:
    web = {"type": "web_search", "external_web_access": False}
    custom = {"type": "custom", "name": "patch", "format": {"type": "grammar"}}
    space = {**NAMESPACE, "tools": [TOOL, custom]}
    names = [t["function"]["name"] for t in request(tools=[web, TOOL, custom, space]).tools]
    assert names == ["f", "crm__f"]
    assert request(tools=[web]).tools is None


class TestNamespaces:
    def test_are_unfolded(self) -> None:
        codex = {**NAMESPACE, "name": "mcp__files__"}
        names = [tool["function"]["name"] for tool in request(tools=[TOOL, NAMESPACE, codex]).tools]
        assert names == ["f", "crm__f", "mcp__files__f"]
        assert (
            request(tools=[NAMESPACE]).tools[0]["function"]["description"] == "customers\n\ndoes f"
        )

    def test_a_function_of_one_is_told_by_namespace_and_name(self) -> None:
        requested = parse(tools=[TOOL, NAMESPACE])
        assert requested.namespaces == {"crm__f": ("crm", "f")}
        assert checked_echo(requested)["tools"][1]["tools"][0]["name"] == "f"

    def test_a_call_that_was_made_has_the_name_that_the_model_knows(self) -> None:
        call = {
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "namespace": "crm",
            "arguments": "{}",
        }
        [message] = request(input=[call]).messages
        assert message.tool_calls[0]["function"]["name"] == "crm__f"

    def test_one_can_be_chosen(self) -> None:
        choice = {"type": "function", "name": "f", "namespace": "crm"}
        assert request(tools=[NAMESPACE], tool_choice=choice).tool_choice == NamedTool(
            name="crm__f"
        )


class TestAllowedTools:
    OTHER = {**TOOL, "name": "g"}

    def test_the_model_hears_of_no_other(self) -> None:
        choice = {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "g"}, {"type": "web_search"}],
        }
        asked = request(tools=[TOOL, self.OTHER], tool_choice=choice)
        assert asked.tool_choice == "required"
        assert [tool["function"]["name"] for tool in asked.tools] == ["g"]
        assert checked_echo(parse(tools=[TOOL, self.OTHER], tool_choice=choice))["tool_choice"] == {
            **choice
        }

    def test_of_a_namespace(self) -> None:
        choice = {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f", "namespace": "crm"}],
        }
        asked = request(tools=[TOOL, NAMESPACE], tool_choice=choice)
        assert [tool["function"]["name"] for tool in asked.tools] == ["crm__f"]

    @pytest.mark.parametrize(
        "tools", [[{"type": "function", "name": "x"}], [{"type": "mcp"}], [{"type": "function"}]]
    )
    def test_what_they_cannot_be(self, tools: list[Any]) -> None:
        choice = {"type": "allowed_tools", "mode": "auto", "tools": tools}
        with pytest.raises(InvalidRequest) as caught:
            request(tools=[TOOL], tool_choice=choice)
        assert caught.value.field == "tool_choice"


def test_verbosity_is_told_to_the_template() -> None:
    requested = parse(text={"verbosity": "low"}, reasoning={"effort": "high"})
    told = {"reasoning_effort": "high", "verbosity": "low"}
    assert requested.request(()).chat_template_kwargs == told
    assert checked_echo(requested)["text"] == {"format": {"type": "text"}, "verbosity": "low"}


def checked_echo(requested: ResponsesRequest) -> dict[str, Any]:
    """What a response repeats, held to the types of OpenAI's client."""
    response = ResponseEvents("r", created_at=0, echo=requested.echo("demo")).response
    checked_response(response)
    return dict(response)


def test_what_runs_in_the_background_is_noted_with_the_items_it_refers_to() -> None:
    reference = {"type": "item_reference", "id": "msg_a_0"}
    requested = parse(input=[reference, {"role": "user", "content": "so?"}], background=True)
    item = InputMessage(id="msg_a_0", role="assistant", content="hi")
    requested.refer({item.id or "": item})
    again = parse_response(requested.raw)
    assert not again.references
    assert again.input == requested.input
    assert again.input[0] == item


def test_a_negative_seed_is_any() -> None:
    assert parse_response(b'{"input": "hi", "seed": -1}').request(()).seed is None


def test_a_response_says_what_holds_where_its_request_says_nothing() -> None:
    echo = parse_response(b'{"input": "hi"}').echo("demo")
    assert (echo["temperature"], echo["top_p"]) == (0.8, 0.95)
    assert (echo["presence_penalty"], echo["frequency_penalty"]) == (0.0, 0.0)
    assert (echo["store"], echo["max_tool_calls"]) == (True, None)
    assert (echo["safety_identifier"], echo["prompt_cache_key"]) == (None, None)
    given = b'{"input": "hi", "safety_identifier": "s", "prompt_cache_key": "k", "top_p": 0}'
    echo = parse_response(given).echo("demo")
    assert (echo["safety_identifier"], echo["prompt_cache_key"], echo["top_p"]) == ("s", "k", 0.0)
