import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import completion_create_params as completion_parameters
from openai.types.chat import completion_create_params as chat_parameters

from arriero.balancer.api.common.body_fields import SAME_NAMES
from arriero.balancer.api.openai.completions import requests
from arriero.balancer.api.openai.completions.requests import (
    MAX_CHOICES,
    CompletionsRequest,
    parse_chat,
    parse_completion,
)
from arriero.balancer.api.openai.fields import HINTS
from arriero.shared.errors import InvalidRequest, RequestTooLarge
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    JsonSchemaGrammar,
    NamedTool,
    RegexGrammar,
    TextPart,
)
from arriero.shared.sampling import SAMPLERS
from tests.balancer.api.json_values import JSON_VALUES, objects_like
from tests.sampling_values import VALUES

MESSAGES = [{"role": "user", "content": "Hi"}]
[USER] = MESSAGES
TOOL = {"type": "function", "function": {"name": "now"}}
HI = (ChatMessage(role="user", content="Hi"),)


def chat(**body: Any) -> CompletionsRequest:
    return parse_chat(json.dumps({"messages": MESSAGES} | body).encode())


def completion(**body: Any) -> CompletionsRequest:
    return parse_completion(json.dumps({"prompt": "x"} | body).encode())


def refusal(parse: Any, **body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(**body)
    return caught.value


def test_the_least() -> None:
    assert chat() == CompletionsRequest(
        (GenerateRequest(messages=HI, stream=False),), 1, None, False, False
    )
    assert completion() == CompletionsRequest(
        (GenerateRequest(prompt="x", stream=False),), 1, None, False, False
    )


def test_everything() -> None:
    sampling = {
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "presence_penalty": -1,
        "frequency_penalty": 2,
        "seed": 5,
        "logit_bias": {"3": -100},
        "stop": ["a", "b"],
        "stop_token_ids": [4],
        "include_stop_str_in_output": True,
        "min_tokens": 2,
        "ignore_eos": True,
        "model": "m",
        "stream": True,
    }
    requested = chat(
        **sampling,
        max_completion_tokens=9,
        tools=[TOOL],
        chat_template_kwargs={"enable_thinking": False},
        stream_options={"include_usage": True},
    )
    expected = GenerateRequest(
        messages=HI,
        max_tokens=9,
        tools=(TOOL,),
        chat_template_kwargs={"enable_thinking": False},
        thinking=False,
        temperature=1.0,
        top_p=0.5,
        top_k=7,
        min_p=0.1,
        repeat_penalty=1.1,
        presence_penalty=-1.0,
        frequency_penalty=2.0,
        seed=5,
        logit_bias={"3": -100.0},
        stop=("a", "b"),
        stop_token_ids=(4,),
        include_stop_str_in_output=True,
        min_tokens=2,
        ignore_eos=True,
        model="m",
    )
    assert replace(requested, field_names=SAME_NAMES) == CompletionsRequest(
        (expected,), 1, "m", True, True
    )
    (request,) = completion(**sampling, max_tokens=9).requests
    assert (request.max_tokens, request.temperature, request.stop) == (9, 1.0, ("a", "b"))


def test_max_tokens_by_its_old_name() -> None:
    assert chat(max_tokens=3).requests[0].max_tokens == 3
    assert refusal(chat, max_tokens=3, max_completion_tokens=4).field == "max_tokens"


def test_vllms_ways_to_end_a_prompt() -> None:
    (request,) = chat(add_generation_prompt=False).requests
    assert not request.add_generation_prompt
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I"}]
    (request,) = chat(messages=messages, continue_final_message=True).requests
    assert request.continue_final_message


def test_stop_as_a_string() -> None:
    assert chat(stop="END").requests[0].stop == ("END",)


def test_choices_draw_with_seeds_of_their_own() -> None:
    requested = chat(n=3, seed=2**32 - 2)
    assert [request.seed for request in requested.requests] == [2**32 - 2, 2**32 - 1, 0]
    assert requested.num_choices == 3
    assert [request.seed for request in chat(n=2).requests] == [None, None]
    assert chat(seed=2**32).requests[0].seed == 0


def test_a_cache_key_is_passed_on_and_nothing_is_loaded_for_it() -> None:
    for requested in (
        chat(prompt_cache_key="k", n=2),
        completion(prompt="a", prompt_cache_key="k"),
    ):
        assert {(one.prompt_cache_key, one.cache_key) for one in requested.requests} == {
            ("k", None)
        }
    assert refusal(chat, prompt_cache_key="x" * 1025).field == "prompt_cache_key"


def test_several_prompts_in_order() -> None:
    requested = completion(prompt=["a", "b"], n=2, seed=1)
    assert [(r.prompt, r.seed) for r in requested.requests] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
        ("b", 2),
    ]


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ([1, 2], [(1, 2)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
        ([[1], "a"], [(1,), "a"]),
    ],
)
def test_prompts_may_be_token_ids(prompt: Any, prompts: Any) -> None:
    assert [request.prompt for request in completion(prompt=prompt).requests] == prompts
    assert refusal(completion, prompt=prompt, echo=True).field == "echo"


@pytest.mark.parametrize(
    ("prompt", "field"),
    [(["a", 1], "prompt[1]"), ([1, 2.5], "prompt[0]"), ([[1, -1]], "prompt[0][1]"), (7, "prompt")],
)
def test_what_is_no_prompt_is_named(prompt: Any, field: str) -> None:
    assert refusal(completion, prompt=prompt).field == field


def test_the_number_of_choices_is_bounded() -> None:
    assert refusal(chat, n=MAX_CHOICES + 1).field == "n"
    assert refusal(chat, n=0).field == "n"
    assert refusal(completion, prompt=["a", "b"], n=MAX_CHOICES).field == "n"
    assert refusal(completion, prompt=["a"] * (MAX_CHOICES + 1)).field == "prompt"
    assert refusal(completion, prompt=[]).field == "prompt"


@pytest.mark.parametrize("name", sorted(HINTS))
def test_hints_are_ignored(name: str) -> None:
    assert chat(**{name: {"any": "thing"}}) == chat()
    assert completion(**{name: "x"}) == completion()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("audio", {}),
        ("modalities", ["text", "audio"]),
        ("web_search_options", {}),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(name: str, value: Any) -> None:
    error = refusal(chat, **{name: value})
    assert (error.field, "not supported" in error.message) == (name, True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"best_of": 2}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"echo": True, "logprobs": 0, "suffix": "end"}, "echo"),
    ],
)
def test_what_completions_cannot_have(body: Any, field: str) -> None:
    error = refusal(completion, **body)
    assert (error.field, "not supported" in error.message) == (field, True)


@pytest.mark.parametrize(
    ("parse", "parameters"),
    [
        (chat, chat_parameters.CompletionCreateParamsBase),
        (completion, completion_parameters.CompletionCreateParamsBase),
    ],
)
def test_every_parameter_of_the_client_is_answered(parse: Any, parameters: Any) -> None:
    """None is unknown: it is served, ignored, or refused as what it is."""
    for name in parameters.__annotations__:
        try:
            parse(**{name: {}})
        except InvalidRequest as error:
            assert "unknown field" not in error.message, name


def test_efforts_of_reasoning() -> None:
    (off,) = chat(reasoning_effort="none").requests
    assert (off.thinking, off.chat_template_kwargs) == (False, None)
    (on,) = chat(reasoning_effort="low", chat_template_kwargs={"a": 1}).requests
    assert (on.thinking, on.chat_template_kwargs) == (True, {"reasoning_effort": "low", "a": 1})
    assert refusal(chat, reasoning_effort="very").field == "reasoning_effort"


def test_log_probabilities_by_either_name() -> None:
    (request,) = chat(logprobs=True, top_logprobs=3).requests
    assert (request.logprobs, request.top_logprobs) == (True, 3)
    (request,) = chat(logprobs=True).requests
    assert (request.logprobs, request.top_logprobs) == (True, None)
    (request,) = completion(logprobs=5).requests
    assert (request.logprobs, request.top_logprobs) == (True, 5)
    (request,) = completion(logprobs=0).requests
    assert (request.logprobs, request.top_logprobs) == (True, None)


@pytest.mark.parametrize("body", [{"logprobs": True, "top_logprobs": 21}, {"top_logprobs": 1}])
def test_what_log_probabilities_cannot_be(body: Any) -> None:
    assert refusal(chat, **body).field == "top_logprobs"
    assert refusal(completion, logprobs=21).field == "logprobs"


def test_an_echo_is_of_the_prompts() -> None:
    assert completion(prompt=["a", "b"], echo=True, n=2).echoes == ("a", "a", "b", "b")
    assert completion(prompt="a").echoes == ()


@pytest.mark.parametrize("prompt", ["a", [1, 2]])
def test_an_echo_beside_log_probabilities_comes_from_the_agent(prompt: Any) -> None:
    requested = completion(prompt=prompt, echo=True, logprobs=1)
    assert (requested.echoes, requested.requests[0].prompt_logprobs) == ((), True)
    assert not completion(prompt=prompt, logprobs=1).requests[0].prompt_logprobs


def test_no_tokens_are_a_prompt_alone() -> None:
    requested = completion(max_tokens=0)
    assert (requested.requests[0].prefill_only, requested.requests[0].max_tokens) == (True, None)
    assert (requested.generates, completion().generates) == (False, True)
    assert refusal(chat, max_tokens=0).field == "max_tokens"


def test_a_suffix_goes_on_to_the_agent() -> None:
    assert completion(suffix="end").requests[0].suffix == "end"


def test_best_of_as_many_as_there_are_is_no_choice() -> None:
    assert completion(best_of=2, n=2) == completion(n=2)


@pytest.mark.parametrize("name", SAMPLERS)
def test_each_sampler_is_taken_beside_openais_fields(name: str) -> None:
    for value in VALUES[name]:
        for requested in (chat(**{name: value}), completion(**{name: value})):
            assert getattr(requested.requests[0], name) == value


def test_what_asks_for_nothing_is_let_through() -> None:
    assert chat(logprobs=False, top_logprobs=0, response_format={"type": "text"}) == chat()
    assert chat(modalities=["text"], parallel_tool_calls=None, tool_choice=None) == chat()

    assert completion(echo=False, best_of=1, suffix="", logprobs=None) == completion()
    assert chat(temperature=None, stop=None, n=None, tools=[], stream=None) == chat()


def test_tools_have_their_limit() -> None:
    with pytest.raises(InvalidRequest, match="`tools` must have at most 1024 entries"):
        chat(tools=[TOOL] * 1025)


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_whether_tools_may_be_called_goes_on_to_the_agent(choice: str) -> None:
    (request,) = chat(tools=[TOOL], tool_choice=choice).requests
    assert request.tool_choice == choice
    assert request.tools == (TOOL,)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        (
            {"messages": [*MESSAGES, {"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[1].content[0].image_url",
        ),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
    ],
)
def test_a_bad_field_is_named(body: Any, field: str) -> None:
    error = refusal(chat, **body)
    assert (error.field or "").startswith(field)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InvalidRequest, match="`messages` is missing"):
        parse_chat(b"{}")
    with pytest.raises(InvalidRequest, match="`prompt` is missing"):
        parse_completion(b"{}")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b"1e999"])
def test_what_is_no_object(body: bytes) -> None:
    for parse in (parse_chat, parse_completion):
        with pytest.raises(InvalidRequest, match="the body"):
            parse(body)


def test_an_answer_can_be_sent_back_as_it_came() -> None:
    echoed = {
        "role": "assistant",
        "content": "Hello",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning_content": "hm",
    }
    (request,) = chat(messages=[*MESSAGES, echoed]).requests
    assert request.messages == (
        *HI,
        ChatMessage(role="assistant", content="Hello", reasoning_content="hm"),
    )


@pytest.mark.parametrize("empty", [[], {}, None])
def test_no_calls_are_absent(empty: object) -> None:
    answer = {"role": "assistant", "content": "Hello", "tool_calls": empty, "name": None}
    (request,) = chat(messages=[*MESSAGES, answer]).requests
    assert request.messages == (*HI, ChatMessage(role="assistant", content="Hello"))


def test_reasoning_comes_back_under_other_servers_names() -> None:
    answer = {"role": "assistant", "content": "Hello"}
    (request,) = chat(messages=[*MESSAGES, {**answer, "reasoning": "hm"}]).requests
    assert request.messages == (
        *HI,
        ChatMessage(role="assistant", content="Hello", reasoning_content="hm"),
    )


def test_text_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    (request,) = chat(messages=[{"role": "user", "content": parts}]).requests
    assert request.messages is not None
    content = (TextPart(type="text", text="a"), TextPart(type="text", text="b"))
    assert request.messages[0].content == content


@given(st.binary())
def test_random_bytes_are_refused(body: bytes) -> None:
    for parse in (parse_chat, parse_completion):
        with pytest.raises(InvalidRequest):
            parse(body)


EXAMPLE = {
    "messages": MESSAGES,
    "prompt": "x",
    "n": 2,
    "seed": 1,
    "stop": "x",
    "stream": True,
    "stream_options": {},
    "tools": [],
    "logit_bias": {},
    "chat_template_kwargs": {},
    "response_format": {"type": "text"},
    "logprobs": False,
    "top_logprobs": 0,
    "echo": False,
    "mirostat": 1,
}


@given(objects_like(EXAMPLE))
def test_any_json_is_refused_or_taken(body: Any) -> None:
    for parse in (parse_chat, parse_completion):
        try:
            requested = parse(json.dumps(body).encode())
        except InvalidRequest as error:
            assert error.message
        else:
            assert requested.requests


@given(st.lists(objects_like({"role": "user", "content": "x", "tool_calls": []}) | JSON_VALUES))
def test_any_messages_are_refused_or_taken(messages: Any) -> None:
    try:
        chat(messages=messages)
    except InvalidRequest as error:
        assert error.message


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def schema_format(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", **fields}}


@pytest.mark.parametrize(
    ("format", "schema"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        (schema_format(), {"type": "object"}),
        (schema_format(schema=SCHEMA, strict=True, description="what it is"), SCHEMA),
    ],
)
def test_response_formats(format: Any, schema: Any) -> None:
    (request,) = chat(response_format=format).requests
    expected = None if schema is None else JsonSchemaGrammar(type="json_schema", schema=schema)
    assert request.grammar == expected


def test_errors_name_the_schema_as_the_body_does() -> None:
    error = InvalidRequest("`grammar.schema.items` is odd", field="grammar.schema.items")
    told = chat(response_format=schema_format(schema=SCHEMA)).field_names.renamed(error)
    assert told.field == "response_format.json_schema.schema.items"
    assert told.message == f"`{told.field}` is odd"
    grammar = {"type": "json_schema", "schema": SCHEMA}
    assert chat(grammar=grammar).field_names.renamed(error) == error


@pytest.mark.parametrize(
    ("format", "field"),
    [
        ({"type": "xml"}, "response_format.type"),
        ({}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {}}, "response_format.json_schema.name"),
        (schema_format(schema=[1]), "response_format.json_schema.schema"),
        ("json", "response_format"),
    ],
)
def test_what_response_formats_cannot_be(format: Any, field: str) -> None:
    assert refusal(chat, response_format=format).field == field


def test_grammars_as_in_the_native_api() -> None:
    grammar = {"type": "regex", "pattern": "yes|no"}
    expected = RegexGrammar(type="regex", pattern="yes|no")
    assert chat(grammar=grammar).requests[0].grammar == expected
    assert completion(grammar=grammar).requests[0].grammar == expected
    error = refusal(chat, grammar=grammar, response_format={"type": "json_object"})
    assert error.field == "response_format"


@pytest.mark.parametrize(
    ("choice", "neutral"),
    [
        ("required", "required"),
        ({"type": "function", "function": {"name": "now"}}, NamedTool(name="now")),
    ],
)
def test_calls_that_have_to_be_made(choice: Any, neutral: Any) -> None:
    (request,) = chat(tools=[TOOL], tool_choice=choice).requests
    assert request.tool_choice == neutral
    assert request.parallel_tool_calls is None


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        ("any", "tool_choice"),
        ({"type": "custom", "custom": {"name": "x"}}, "tool_choice"),
        ({"type": "function", "name": "x"}, "tool_choice.function"),
    ],
)
def test_what_choices_cannot_be(choice: Any, field: str) -> None:
    assert refusal(chat, tool_choice=choice).field.startswith(field)


def test_one_call_at_a_time() -> None:
    for asked in (True, False):
        (request,) = chat(tools=[TOOL], parallel_tool_calls=asked).requests
        assert request.parallel_tool_calls is asked


# ---- how much one call may come to


def test_n_times_the_body_is_bounded() -> None:
    assert len(completion(prompt="x" * 130_000, n=128).requests) == 128
    with pytest.raises(RequestTooLarge, match="`n`: the requests of this call have") as caught:
        completion(prompt="x" * 132_000, n=128)
    assert caught.value.field == "n"
    with pytest.raises(RequestTooLarge, match="`n`"):
        chat(messages=[{"role": "user", "content": "x" * 132_000}], n=128)


def test_what_prompts_share_counts_for_each_of_them() -> None:
    grammar = {"type": "json_schema", "schema": {"description": "x" * 200_000}}
    assert len(completion(prompt=["a"] * 80, grammar=grammar).requests) == 80
    with pytest.raises(RequestTooLarge):
        completion(prompt=["a"] * 90, grammar=grammar)


def test_many_long_prompts_count_once_each() -> None:
    assert len(completion(prompt=["x" * 120_000] * 128).requests) == 128


def test_choices_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[GenerateRequest] = []
    monkeypatch.setattr(requests, "check_readable", looked_at.append)
    assert len(completion(prompt=["a", "b"], n=60).requests) == 120
    assert len(looked_at) == 1


class TestAllowedTools:
    TOOLS = [{"type": "function", "function": {"name": name}} for name in "fg"]

    def test_the_model_hears_of_no_other(self) -> None:
        choice = {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "g"}}, {"type": "custom"}],
            },
        }
        asked = chat(tools=self.TOOLS, tool_choice=choice).requests[0]
        assert asked.tool_choice == "auto"
        assert asked.tools == (self.TOOLS[1],)

    @pytest.mark.parametrize(
        "entry",
        [
            {"type": "custom"},
            {"type": "function", "function": {"name": "x"}},
            {"type": "function"},
        ],
    )
    def test_what_they_cannot_be(self, entry: Any) -> None:
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [entry]}}
        error = refusal(chat, tools=self.TOOLS, tool_choice=choice)
        assert error.field == "tool_choice"


def test_verbosity_is_told_to_the_template() -> None:
    asked = chat(verbosity="low", chat_template_kwargs={"x": 1}).requests[0]
    assert asked.chat_template_kwargs == {"verbosity": "low", "x": 1}
    assert refusal(chat, verbosity="loud").field == "verbosity"


def test_a_json_object_may_have_a_schema() -> None:
    schema = {"type": "object", "required": ["a"]}
    requested = chat(response_format={"type": "json_object", "schema": schema})
    assert requested.requests[0].grammar == JsonSchemaGrammar(type="json_schema", schema=schema)
    error = InvalidRequest("`grammar.schema.a`: no", field="grammar.schema.a")
    assert requested.field_names.renamed(error).field == "response_format.schema.a"


def test_a_running_usage() -> None:
    requested = chat(stream=True, stream_options={"continuous_usage_stats": True})
    assert (requested.has_running_usage, requested.include_usage) == (True, False)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "user"}, "content` is missing"),
        ({"role": "user", "content": None}, "content` is missing"),
        ({"role": "system"}, "content` is missing"),
        ({"role": "user", "content": []}, "content` must have at least one entry, not []"),
        ({"role": "tool", "content": "hi"}, "tool_call_id` is missing: give the id of the call"),
    ],
)
def test_a_message_that_says_nothing_is_refused(message: Any, problem: str) -> None:
    error = refusal(chat, messages=[USER, message])
    assert error.message.startswith(f"`messages[1].{problem}")
    assert error.message.startswith(f"`{error.field}`")


def test_answers_and_results_may_be_empty() -> None:
    """A client sends back what it got: of an answer that was cut, of a function of no value."""
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": []},
        {"role": "assistant", "reasoning_content": "I"},
        {"role": "user", "content": ""},
    ]
    assert len(chat(messages=messages).requests[0].messages or ()) == 5


@pytest.mark.parametrize(
    ("prompt", "field"),
    [(5, "prompt"), ([5.5], "prompt[0]"), ([-1], "prompt[0]"), ([[-1]], "prompt[0][0]")],
)
def test_prompts_are_called_what_the_client_gave(prompt: object, field: str) -> None:
    assert refusal(completion, prompt=prompt).field == field


# ---- fields as programs send them


@pytest.mark.parametrize("parse", [chat, completion])
@pytest.mark.parametrize("seed", [-1, -1.0, -(2**63)])
def test_a_negative_seed_is_any(parse: Any, seed: float) -> None:
    assert [request.seed for request in parse(seed=seed, n=2).requests] == [None, None]


@pytest.mark.parametrize(
    "switch",
    [
        {"reasoning_effort": "none"},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"enabled": False}},
        {"reasoning": {"enabled": False, "effort": "high"}},
        {"enable_thinking": False},
        {"thinking": False},
        {"thinking": {"type": "disabled"}},
        {"think": False},
        {"think": "none"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"thinking": False}},
        {"reasoning_effort": "medium", "enable_thinking": False},
    ],
)
def test_each_switch_turns_thinking_off(switch: dict[str, Any]) -> None:
    assert chat(**switch).requests[0].thinking is False


@pytest.mark.parametrize(
    ("switch", "effort"),
    [
        ({"reasoning": {"effort": "low"}}, "low"),
        ({"reasoning": {"enabled": True}}, None),
        ({"enable_thinking": True}, None),
        ({"thinking": {"type": "enabled"}}, None),
        ({"think": "high"}, "high"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, None),
    ],
)
def test_each_switch_turns_thinking_on(switch: dict[str, Any], effort: str | None) -> None:
    (request,) = chat(**switch).requests
    assert request.thinking is True
    assert (request.chat_template_kwargs or {}).get("reasoning_effort") == effort


@pytest.mark.parametrize(
    "switch", [{}, {"thinking": {"type": "auto"}}, {"reasoning": {}}, {"reasoning": []}]
)
def test_what_says_nothing_of_thinking_leaves_it_open(switch: dict[str, Any]) -> None:
    assert chat(**switch).requests[0].thinking is None


@pytest.mark.parametrize("parse", [chat, completion])
def test_either_name_bounds_the_tokens(parse: Any) -> None:
    assert parse(max_completion_tokens=5).requests[0].max_tokens == 5
    assert parse(max_completion_tokens=5, max_tokens=5).requests[0].max_tokens == 5
    assert parse(max_completion_tokens=5, max_tokens=-1).requests[0].max_tokens == 5
    assert refusal(parse, max_completion_tokens=5, max_tokens=6).field == "max_tokens"


@pytest.mark.parametrize("parse", [chat, completion])
@pytest.mark.parametrize(
    ("body", "neutral"),
    [
        ({"max_tokens": 4.0, "top_k": 7.0}, {"max_tokens": 4, "top_k": 7}),
        ({"stop_token_ids": [1.0, 2]}, {"stop_token_ids": (1, 2)}),
        ({"stop": ""}, {"stop": ()}),
        ({"stop": [""]}, {"stop": ()}),
        ({"stop": ["a", "", "b"]}, {"stop": ("a", "b")}),
        ({"stop": ["a"] * 64}, {"stop": ("a",) * 64}),
        ({"top_p": 0}, {"top_p": 0.0}),
        ({"grammar": "", "guided_json": "", "regex": ""}, {"grammar": None}),
        ({"logit_bias": []}, {"logit_bias": {}}),
        ({"logit_bias": [[5, -1.5], [6.0, False]]}, {"logit_bias": {"5": -1.5, "6": -100.0}}),
        ({"dry_sequence_breakers": '["\\n", ":"]'}, {"dry_sequence_breakers": ("\n", ":")}),
        ({"dry_sequence_breakers": '"a", "b"'}, {"dry_sequence_breakers": ("a", "b")}),
        ({"dry_sequence_breakers": ""}, {"dry_sequence_breakers": ()}),
        ({"stream_options": []}, {"stream": False}),
    ],
)
def test_values_as_programs_write_them(
    parse: Any, body: dict[str, Any], neutral: dict[str, Any]
) -> None:
    (request,) = parse(**body).requests
    assert {name: getattr(request, name) for name in neutral} == neutral


def test_no_list_stands_for_an_object() -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": []}}
    tools = [
        {"type": "function", "function": function},
        {"type": "function", "function": {"name": "g", "parameters": []}},
    ]
    given = chat(tools=tools, chat_template_kwargs=[], response_format=schema_format(schema=[]))
    (request,) = given.requests
    first, second = request.tools or ()
    assert first["function"]["parameters"] == {"type": "object", "properties": {}}
    assert second["function"]["parameters"] == {}
    assert request.grammar == JsonSchemaGrammar(type="json_schema", schema={})


def test_what_is_no_number_and_no_list_stays_wrong() -> None:
    assert refusal(chat, max_tokens=4.5).field == "max_tokens"
    assert refusal(chat, dry_sequence_breakers="no list [").field == "dry_sequence_breakers"
    assert refusal(chat, logit_bias=[["a", 1]]).field == "logit_bias[0]"
    assert refusal(chat, stop=["a"] * 65).field == "stop"


@pytest.mark.parametrize(
    ("strict", "is_held"), [({}, True), ({"strict": True}, True), ({"strict": False}, False)]
)
def test_a_schema_may_be_held_to_as_far_as_possible(strict: dict[str, Any], is_held: bool) -> None:
    named = {"name": "n", "schema": {"not": {}}, **strict}
    (request,) = chat(response_format={"type": "json_schema", "json_schema": named}).requests
    assert request.grammar == JsonSchemaGrammar(
        type="json_schema", schema={"not": {}}, strict=is_held
    )
