"""The neutral request takes what it promises and refuses the rest by name."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import (
    ChatMessage,
    GbnfGrammar,
    GenerateRequest,
    NamedTool,
    goes_on_anywhere,
    goes_on_by_text,
)
from arriero.shared.inference.prefix_chain import NO_CHAIN, chain_of
from arriero.shared.validation import parse_json

REQUEST = TypeAdapter(GenerateRequest)
HELLO = {"role": "user", "content": "hello"}


def parse(**fields: Any) -> GenerateRequest:
    return parse_json(REQUEST, json.dumps(fields))


def refused_field(**fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    return caught.value.field


def test_the_least_requests() -> None:
    assert parse(prompt="") == GenerateRequest(prompt="")
    assert parse(messages=[HELLO]).messages == (ChatMessage(role="user", content="hello"),)


def test_everything_at_once() -> None:
    fields: dict[str, Any] = {
        "prompt": "hello",
        "model": "m",
        "stream": False,
        "max_tokens": 5,
        "temperature": 0,
        "top_k": 0,
        "top_p": 1,
        "min_p": 0,
        "typical_p": 0.5,
        "top_n_sigma": 1.5,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.2,
        "dynatemp_range": 0.3,
        "dynatemp_exponent": 1.2,
        "adaptive_target": 0.5,
        "adaptive_decay": 0.9,
        "repeat_penalty": 1.1,
        "repeat_last_n": 0,
        "dry_multiplier": 0.8,
        "dry_base": 1,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": 9,
        "dry_sequence_breakers": ["\n"],
        "samplers": ["top_k", "temperature"],
        "mirostat": 2,
        "mirostat_tau": 3,
        "mirostat_eta": 0.5,
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "seed": 2**32 - 1,
        "logit_bias": {"17": -100},
        "allowed_token_ids": [3, 17],
        "bad_words": ["no"],
        "stop": ["\n"],
        "stop_token_ids": [3, 0],
        "include_stop_str_in_output": True,
        "min_tokens": 5,
        "ignore_eos": True,
        "logprobs": True,
        "top_logprobs": 20,
        "suffix": "x",
        "thinking": False,
        "chat_template_kwargs": {"effort": "high", "none": None},
        "add_generation_prompt": False,
        "continue_final_message": False,
        "tools": [{"type": "function"}],
        "parallel_tool_calls": False,
        "priority": -100,
        "prefill_only": True,
        "prompt_logprobs": False,
        "cache_key": "k" * 256,
        "save_cache": True,
    }
    request = parse(**fields)
    assert json.loads(REQUEST.dump_json(request, exclude_none=True)) == fields


@pytest.mark.parametrize("fields", [{}, {"prompt": "a", "messages": [HELLO]}])
def test_exactly_one_of_prompt_and_messages(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="give exactly one of `prompt` and `messages`"):
        parse(**fields)


@pytest.mark.parametrize("key", [{}, {"cache_key": None}])
def test_a_cache_is_saved_under_a_key(key: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="`save_cache` needs a `cache_key`") as refused:
        parse(prompt="a", save_cache=True, **key)
    assert refused.value.field == "save_cache"
    assert parse(prompt="a", save_cache=False, **key).cache_key is None


@pytest.mark.parametrize("value", [1, 512, -1])
def test_only_the_last_tokens_are_read(value: int) -> None:
    assert parse(prompt="a", truncate_prompt_tokens=value).truncate_prompt_tokens == value
    assert not goes_on_by_text(parse(prompt="a", truncate_prompt_tokens=value))
    assert chain_of(parse(prompt="a" * 99, truncate_prompt_tokens=value)) == NO_CHAIN


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 5, "n_discard": 9}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 5, "suffix": "b"}, "truncate_prompt_tokens"),
        (
            {"truncate_prompt_tokens": 5, "logprobs": True, "prompt_logprobs": True},
            "prompt_logprobs",
        ),
    ],
)
def test_what_cannot_be_cut(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(prompt="a", **fields)
    assert refused.value.field == field


@pytest.mark.parametrize(("field", "value"), [("prefill_only", True), ("cache_key", "k")])
def test_what_moves_is_not_kept(field: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match="cannot be used with `n_discard`") as refused:
        parse(prompt="a", n_discard=256, **{field: value})
    assert refused.value.field == field
    assert parse(prompt="a", n_discard=256, prefill_only=False).n_discard == 256


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_discard", 0),
        ("prefill_only", 1),
        ("cache_key", ""),
        ("cache_key", "k" * 257),
        ("cache_key", 1),
        ("save_cache", 1),
        ("prompt", 1),
        ("messages", []),
        ("messages", [HELLO] * 4097),
        ("max_tokens", 0),
        ("max_tokens", 2**31),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", -0.1),
        ("top_p", 1.01),
        ("min_p", 1.01),
        ("repeat_penalty", 0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("seed", -1),
        ("seed", 2**32),
        ("logit_bias", {str(token): 0 for token in range(1025)}),
        ("stop", 1),
        ("stop", ["a"] * 65),
        ("stream", "yes"),
        ("ignore_eos", 1),
        ("thinking", "no"),
        ("tools", {}),
        ("priority", 101),
        ("n_predict", 5),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    fields = {"prompt": "a"} if field != "messages" else {}
    assert refused_field(**fields | {field: value}) == field


@pytest.mark.parametrize("key", ["", "-1", "1.5", "1234567890", "\u0661"])
def test_keys_of_a_bias_are_token_ids(key: str) -> None:
    assert refused_field(prompt="a", logit_bias={key: 0}) == f'logit_bias["{key}"]'


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"content": "x"}, "messages[0].role"),
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"role": "user", "content": 1}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        (
            {"role": "user", "content": [{"type": "image", "text": ""}]},
            "messages[0].content[0].type",
        ),
        ({"role": "user", "content": "x", "mood": "good"}, "messages[0].mood"),
    ],
)
def test_a_wrong_message_is_named(message: dict[str, Any], field: str) -> None:
    assert refused_field(messages=[message]) == field


def test_what_stands_without_what_it_needs_is_refused() -> None:
    assert refused_field(prompt="x", top_logprobs=1) == "top_logprobs"
    assert refused_field(prompt="x", prompt_logprobs=True) == "prompt_logprobs"
    for other in ({"n_discard": 4}, {"suffix": "y"}):
        fields: Any = {"prompt": "x", "logprobs": True, "prompt_logprobs": True, **other}
        assert refused_field(**fields) == "prompt_logprobs"
    assert refused_field(prompt="x", logprobs=True, top_logprobs=21) == "top_logprobs"
    assert refused_field(messages=[HELLO], suffix="y") == "suffix"


@pytest.mark.parametrize(
    ("messages", "is_right"),
    [
        ([HELLO, {"role": "assistant", "content": "I"}], True),
        ([HELLO, {"role": "assistant", "content": ""}], False),
        ([HELLO], False),
    ],
)
def test_only_an_assistants_message_is_continued(messages: list[Any], is_right: bool) -> None:
    fields = {"messages": messages, "continue_final_message": True}
    if is_right:
        assert parse(**fields).continue_final_message
    else:
        assert refused_field(**fields) == "continue_final_message"
    assert refused_field(prompt="x", continue_final_message=True) == "continue_final_message"


USER = ChatMessage(role="user", content="hi")
ANSWER = ChatMessage(role="assistant", content="He")
CHAT = GenerateRequest(messages=(USER,))
TEXT = GenerateRequest(prompt="Once")
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
GRAMMAR = GbnfGrammar(type="gbnf", grammar='root ::= "a"')


@pytest.mark.parametrize(
    "request_",
    [
        CHAT,
        TEXT,
        replace(CHAT, tools=(TOOL,)),
        replace(CHAT, tools=(TOOL,), tool_choice="none"),
        replace(CHAT, logprobs=True, stop=("a",)),
        replace(CHAT, messages=(USER, ANSWER), continue_final_message=True),
    ],
)
def test_plain_text_goes_on(request_: GenerateRequest) -> None:
    assert goes_on_by_text(request_)


@pytest.mark.parametrize(
    "request_",
    [
        GenerateRequest(prompt=(1, 2)),
        replace(TEXT, suffix="end"),
        replace(CHAT, grammar=GRAMMAR),
        replace(CHAT, tools=(TOOL,), tool_choice="required"),
        replace(CHAT, tools=(TOOL,), tool_choice=NamedTool(name="f")),
        replace(CHAT, add_generation_prompt=False),
        replace(CHAT, messages=(USER, ANSWER)),
    ],
)
def test_what_has_no_place_for_a_text_does_not(request_: GenerateRequest) -> None:
    assert not goes_on_by_text(request_)


def test_only_a_server_of_the_same_kind_goes_on_with_log_probabilities() -> None:
    assert goes_on_anywhere(CHAT) and goes_on_anywhere(TEXT)
    for request in (replace(CHAT, logprobs=True), replace(TEXT, prompt_logprobs=1)):
        assert goes_on_by_text(request)
        assert not goes_on_anywhere(request)
    assert not goes_on_anywhere(replace(CHAT, save_cache=True, cache_key="a"))
    assert not goes_on_anywhere(GenerateRequest(prompt=(1, 2)))
