import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.native.queries import count_tokens
from arriero.balancer.api.native.requests import MAX_BATCH_REQUESTS, parse_batch, parse_generate
from arriero.shared.errors import ClientError, InvalidRequest
from arriero.shared.inference import GenerateRequest, NamedTool
from tests.balancer.api.json_values import JSON_VALUES, objects_like


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_generate() -> None:
    body = {"prompt": "x", "stop": ["a"], "stream": False, "logit_bias": {"5": 1}}
    assert parse_generate(encode(body)) == GenerateRequest(
        prompt="x", stop=("a",), stream=False, logit_bias={"5": 1.0}
    )


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(InvalidRequest, match="unknown field `temprature`"):
        parse_generate(encode({"prompt": "x", "temprature": 1}))
    with pytest.raises(InvalidRequest, match=r"unknown field `messages\[0\].grammar`"):
        body = {"messages": [{"role": "user", "content": "x", "grammar": 1}]}
        parse_generate(encode(body))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "user"}, "content"),
        ({"role": "user", "content": None}, "content"),
        ({"role": "user", "content": []}, "content"),
        ({"role": "system"}, "content"),
        ({"role": "tool", "content": "noon"}, "tool_call_id"),
    ],
)
def test_a_message_that_says_nothing_is_refused(message: Any, field: str) -> None:
    body = {"messages": [{"role": "user", "content": "x"}, message]}
    with pytest.raises(InvalidRequest) as caught:
        parse_generate(encode(body))
    assert caught.value.field == f"messages[1].{field}"
    with pytest.raises(InvalidRequest) as caught:
        count_tokens(encode(body))
    assert caught.value.field == f"messages[1].{field}"
    with pytest.raises(InvalidRequest) as caught:
        parse_batch(encode({"requests": [{"prompt": "x"}, body]}))
    assert caught.value.field == f"requests[1].messages[1].{field}"


def test_answers_and_results_may_be_empty() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": ""},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c"},
        {"role": "assistant", "reasoning_content": "I"},
    ]
    assert len(parse_generate(encode({"messages": messages})).messages or ()) == 4


def test_tools_have_their_limit() -> None:
    """Each costs the event loop more than its characters."""
    with pytest.raises(InvalidRequest, match="`tools` must have at most 1024 entries"):
        parse_generate(encode({"prompt": "x", "tools": [{}] * 1025}))


def test_batch_ids_default_to_positions() -> None:
    batch = parse_batch(encode({"requests": [{"prompt": "x"}, {"id": "b", "prompt": "y"}]}))
    assert batch.ids == ("0", "b")
    assert batch.requests == (GenerateRequest(prompt="x"), GenerateRequest(prompt="y"))
    assert [type(request) for request in batch.requests] == [GenerateRequest] * 2
    assert batch.stream


def test_a_batch_saves_once_under_a_key() -> None:
    reads = {"prompt": "x", "cache_key": "k"}
    writes = {**reads, "save_cache": True}
    other = {**writes, "cache_key": "l"}
    assert len(parse_batch(encode({"requests": [reads, writes, reads, other]})).requests) == 4
    with pytest.raises(InvalidRequest, match=r"requests\[1\] already saves .* 'k'") as caught:
        parse_batch(encode({"requests": [reads, writes, other, writes]}))
    assert caught.value.field == "requests[3].save_cache"


def test_a_batch_names_the_request_that_saves_under_no_key() -> None:
    with pytest.raises(InvalidRequest, match="needs a `cache_key`") as caught:
        parse_batch(encode({"requests": [{"prompt": "x"}, {"prompt": "y", "save_cache": True}]}))
    assert caught.value.field == "requests[1].save_cache"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"requests": []}, "requests"),
        ({}, "requests"),
        ({"requests": [{"prompt": "x"}] * (MAX_BATCH_REQUESTS + 1)}, "requests"),
        ({"requests": [{"id": "a", "prompt": "x"}] * 2}, "requests[1].id"),
        ({"requests": [{"prompt": "x"}, {"id": "0", "prompt": "x"}]}, "requests[1].id"),
        ({"requests": [{"id": "", "prompt": "x"}]}, "requests[0].id"),
        ({"requests": [{"id": 1, "prompt": "x"}]}, "requests[0].id"),
        ({"requests": [{}]}, "requests[0]"),
        ({"requests": [{"prompt": "x", "stream": False}]}, "requests[0].stream"),
        ({"requests": [{"prompt": "x"}], "model": "m"}, "model"),
    ],
)
def test_a_bad_batch_names_the_field(body: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_batch(encode(body))
    assert caught.value.field == field


@given(st.binary())
def test_random_bytes_are_refused(body: bytes) -> None:
    for parse in (parse_generate, parse_batch):
        with pytest.raises(ClientError):
            parse(body)


@given(objects_like({"prompt": "x", "stop": ["a"], "logit_bias": {}, "requests": [], "id": "i"}))
def test_any_json_is_refused_or_taken(body: Any) -> None:
    for parse in (parse_generate, parse_batch):
        try:
            parse(encode(body))
        except ClientError as error:
            assert error.message


@given(JSON_VALUES)
def test_any_entry_is_refused_or_taken(entry: Any) -> None:
    try:
        parse_batch(encode({"requests": [entry]}))
    except ClientError as error:
        assert error.message


@pytest.mark.parametrize(
    "grammar",
    [
        {"type": "json_schema", "schema": {"type": "object"}},
        {"type": "gbnf", "grammar": 'root ::= "yes"'},
        {"type": "regex", "pattern": "yes|no"},
    ],
)
def test_grammars(grammar: dict[str, Any]) -> None:
    request = parse_generate(encode({"prompt": "x", "grammar": grammar}))
    assert request.grammar is not None
    assert request.grammar.type == grammar["type"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"grammar": {"type": "bnf"}}, "grammar.type"),
        ({"grammar": {"type": "regex"}}, "grammar.pattern"),
        ({"grammar": {"type": "json_schema", "schema": "{}"}}, "grammar.schema"),
        ({"grammar": {"type": "gbnf", "grammar": ""}}, "grammar.grammar"),
        ({"tool_choice": "must"}, "tool_choice"),
        ({"tool_choice": {"name": ""}}, "tool_choice.name"),
    ],
)
def test_what_grammars_and_choices_cannot_be(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_generate(encode({"prompt": "x", **body}))
    assert caught.value.field == field


def test_choices_of_tools() -> None:
    request = parse_generate(encode({"prompt": "x", "tool_choice": {"name": "now"}}))
    assert request.tool_choice == NamedTool(name="now")
    required = parse_generate(encode({"prompt": "x", "tool_choice": "required"}))
    assert required.parallel_tool_calls is None
