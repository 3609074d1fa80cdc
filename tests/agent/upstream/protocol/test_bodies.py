from dataclasses import replace
from typing import Any

import pytest

from arriero.agent.upstream.protocol.bodies import Server, body_of, path_of
from arriero.shared.errors import NotSupported
from arriero.shared.inference import (
    ChatMessage,
    GbnfGrammar,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    JsonSchemaGrammar,
    LarkGrammar,
    NamedTool,
    RegexGrammar,
    TextPart,
)
from tests.agent.upstream.protocol.servers import (
    ARRIERO_SERVER,
    LLAMA,
    OLLAMA_SERVER,
    OPENAI,
    SGLANG_SERVER,
    VLLM_SERVER,
)

HI = (ChatMessage(role="user", content="hi"),)
TOOL = {"type": "function", "function": {"name": "look"}}


def chat(server: Server = OPENAI, **fields: Any) -> dict[str, Any]:
    body = body_of(GenerateRequest(**{"messages": HI, **fields}), server)
    for name in ("model", "stream", "stream_options"):
        body.pop(name)
    return body


ASKED = {"messages": [{"role": "user", "content": "hi"}]}


def test_a_chat() -> None:
    request = GenerateRequest(messages=HI, max_tokens=5, seed=3, temperature=0.5, stop=("a",))
    assert path_of(request) == "/chat/completions"
    assert body_of(request, OPENAI) == {
        **ASKED,
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "seed": 3,
        "temperature": 0.5,
        "stop": ["a"],
    }


def test_a_completion_says_that_it_wants_no_limit() -> None:
    request = GenerateRequest(prompt="a", logprobs=True, top_logprobs=2)
    assert path_of(request) == "/completions"
    body = body_of(request, VLLM_SERVER)
    assert (body["prompt"], body["max_tokens"], body["logprobs"]) == ("a", None, 2)
    assert body_of(GenerateRequest(prompt=(1, 2)), VLLM_SERVER)["prompt"] == [1, 2]


def test_counts_are_asked_for_as_the_server_can() -> None:
    request = GenerateRequest(messages=HI)
    counting = {"include_usage": True, "continuous_usage_stats": True}
    assert body_of(request, VLLM_SERVER)["stream_options"] == counting
    assert "stream_options" not in body_of(request, replace(OPENAI, counts_at_end=False))


def test_fields_that_a_server_calls_otherwise_or_refuses() -> None:
    server = replace(
        OPENAI, renamed={"max_tokens": "max_completion_tokens"}, refused=frozenset(("seed",))
    )
    assert chat(server, max_tokens=5, seed=4) == {**ASKED, "max_completion_tokens": 5}


def test_pictures_keep_their_place_among_the_texts() -> None:
    url = "data:image/png;base64,AA=="
    picture = ImagePart(type="image_url", image_url=ImageUrl(url=url))
    parts = (TextPart(type="text", text="a"), picture, TextPart(type="text", text="b"))
    seen = (ChatMessage(role="user", content=parts),)
    [message] = chat(messages=seen)["messages"]
    assert message["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "b"},
    ]
    results = (ChatMessage(role="tool", content=parts, tool_call_id="c"),)
    [result] = chat(messages=results)["messages"]
    assert result["content"] == message["content"]
    blind = replace(OPENAI, abilities=OPENAI.abilities - {"vision"})
    [result] = chat(blind, messages=results)["messages"]
    assert result["content"] == "a[a picture that this model cannot take]b"
    with pytest.raises(NotSupported) as refused:
        chat(blind, messages=seen)
    assert refused.value.field == "messages[0].content[1].image_url.url"


def test_messages() -> None:
    parts = (TextPart(type="text", text="a"), TextPart(type="text", text="b"))
    called = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = (
        ChatMessage(role="developer", content="be brief"),
        ChatMessage(role="user", content=parts, name="Ann"),
        ChatMessage(role="assistant", content=None, tool_calls=(called,), reasoning_content="hm"),
        ChatMessage(role="tool", content="9", tool_call_id="c"),
    )
    assert chat(messages=messages)["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a\nb", "name": "Ann"},
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "content": "9", "tool_call_id": "c"},
    ]
    assert chat(VLLM_SERVER, messages=messages)["messages"][2]["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    ("arguments", "sent"), [(None, "{}"), ({"a": 1}, '{"a":1}'), ('{"ci', '{"ci')]
)
def test_arguments_of_calls_are_text(arguments: object, sent: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}
    messages = (ChatMessage(role="assistant", tool_calls=(call,)),)
    [message] = chat(messages=messages)["messages"]
    assert message["tool_calls"][0]["function"] == {"name": "look", "arguments": sent}


def test_tools() -> None:
    assert chat(tools=(TOOL,)) == {**ASKED, "tools": [TOOL]}
    assert chat(tools=(TOOL,), tool_choice="none") == ASKED
    forced = chat(tools=(TOOL,), tool_choice="required", parallel_tool_calls=False)
    assert (forced["tool_choice"], forced["parallel_tool_calls"]) == ("required", False)
    named = chat(tools=(TOOL,), tool_choice=NamedTool(name="look"))
    assert named["tool_choice"] == {"type": "function", "function": {"name": "look"}}


def test_log_probabilities() -> None:
    assert chat(logprobs=True) == {**ASKED, "logprobs": True, "top_logprobs": 0}


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (VLLM_SERVER, {"top_k": 5, "repetition_penalty": 1.1, "min_tokens": 2, "ignore_eos": True}),
        (LLAMA, {"top_k": 5, "repeat_penalty": 1.1, "ignore_eos": True}),
        (SGLANG_SERVER, {"top_k": 5, "repetition_penalty": 1.1, "ignore_eos": True}),
        (OPENAI, {}),
    ],
)
def test_samplers_under_each_servers_names(server: Server, told: dict[str, Any]) -> None:
    asked = chat(server, top_k=5, repeat_penalty=1.1, min_tokens=2, ignore_eos=True)
    assert asked == {**ASKED, **told}


def test_zero_is_a_value() -> None:
    assert chat(LLAMA, top_k=0, mirostat=0, temperature=0.0) == {
        **ASKED,
        "top_k": 0,
        "mirostat": 0,
        "temperature": 0.0,
    }


@pytest.mark.parametrize(("server", "told"), [(VLLM_SERVER, 0), (SGLANG_SERVER, -1)])
def test_all_tokens_are_left_in_each_servers_words(server: Server, told: int) -> None:
    assert chat(server, top_k=0)["top_k"] == told


def test_stops() -> None:
    asked = chat(VLLM_SERVER, stop_token_ids=(5,), include_stop_str_in_output=True)
    assert asked == {**ASKED, "stop_token_ids": [5], "include_stop_str_in_output": True}


def test_what_bounds_tokens() -> None:
    limits = {"allowed_token_ids": (5,), "bad_words": ("no",), "truncate_prompt_tokens": 9}
    told = {"allowed_token_ids": [5], "bad_words": ["no"], "truncate_prompt_tokens": 9}
    assert chat(VLLM_SERVER, **limits) == {**ASKED, **told}


def test_what_the_template_is_told() -> None:
    assert chat(VLLM_SERVER, thinking=False, chat_template_kwargs={"a": 1}) == {
        **ASKED,
        "chat_template_kwargs": {"a": 1, "enable_thinking": False, "thinking": False},
    }
    assert chat(VLLM_SERVER, add_generation_prompt=False)["add_generation_prompt"] is False
    said = (*HI, ChatMessage(role="assistant", content="well"))
    goes_on = chat(VLLM_SERVER, messages=said, continue_final_message=True)
    assert goes_on["continue_final_message"] is True
    assert goes_on["add_generation_prompt"] is False
    as_answer = chat(ARRIERO_SERVER, messages=said, continue_final_message=True)
    assert as_answer["continue_final_message"] is True
    assert "add_generation_prompt" not in as_answer, "what begins an answer is to come before it"


def test_grammars() -> None:
    schema = JsonSchemaGrammar(type="json_schema", schema={"type": "object"})
    named = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    shape = {"type": "json_schema", "json_schema": named}
    assert chat(grammar=schema)["response_format"] == shape
    regex = RegexGrammar(type="regex", pattern="a+")
    assert chat(VLLM_SERVER, grammar=regex)["structured_outputs"] == {"regex": "a+"}
    assert chat(SGLANG_SERVER, grammar=regex)["regex"] == "a+"
    gbnf = GbnfGrammar(type="gbnf", grammar='root ::= "a"')
    assert chat(LLAMA, grammar=gbnf)["grammar"] == 'root ::= "a"'
    assert chat(ARRIERO_SERVER, grammar=gbnf)["structured_outputs"] == {"grammar": 'root ::= "a"'}
    lark = LarkGrammar(type="lark", grammar='start: "a"')
    assert chat(ARRIERO_SERVER, grammar=lark)["structured_outputs"] == {"grammar": 'start: "a"'}


def test_what_the_server_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(NotSupported) as caught:
        chat(OLLAMA_SERVER, logprobs=True)
    assert caught.value.field == "logprobs"
    assert "the upstream server of `m` cannot serve it" in caught.value.message
