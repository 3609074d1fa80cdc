"""Messages that say something, functions that models can call, requests that agents can read."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.balancer.api.common import request_checks
from arriero.balancer.api.common.body_fields import FieldNames
from arriero.balancer.api.common.request_checks import (
    MAX_TEXT_BYTES,
    FunctionName,
    check_copies,
    check_messages,
    check_readable,
    check_tools,
)
from arriero.shared.errors import InvalidRequest, RequestTooLarge
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    JsonSchemaGrammar,
    RequestId,
)
from arriero.shared.messages import Start, decode_from_balancer, encode_from_balancer
from tests.balancer.fleet.builders import request

_message = TypeAdapter(ChatMessage)
CALL = {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}


def read(message: dict[str, Any]) -> ChatMessage:
    return _message.validate_json(json.dumps(message))


@pytest.mark.parametrize(
    "message",
    [
        *({"role": role, "content": ""} for role in ("system", "developer", "user", "assistant")),
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "assistant", "content": None},
        {"role": "tool", "tool_call_id": "c"},
    ],
)
def test_messages_that_are_taken(message: dict[str, Any]) -> None:
    check_messages([read(message)])


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        *(
            ({"role": role}, "content` is missing: give a text, or a list of parts")
            for role in ("system", "developer", "user")
        ),
        ({"role": "user", "content": []}, "content` must have at least one entry, not []"),
        ({"role": "tool", "content": "x"}, "tool_call_id` is missing: give the id of the call"),
    ],
)
def test_messages_that_are_refused(message: dict[str, Any], problem: str) -> None:
    """By the name that the client has for it."""
    messages = [read({"role": "user", "content": "x"}), read(message)]
    with pytest.raises(InvalidRequest) as caught:
        check_messages(messages, FieldNames({"messages": "requests[7].messages"}))
    assert caught.value.message.startswith(f"`requests[7].messages[1].{problem}")
    assert caught.value.message.startswith(f"`{caught.value.field}`")


def function(**given: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "now", **given}}


@pytest.mark.parametrize(
    "tool",
    [
        function(),
        function(parameters=None),
        function(parameters={"type": "object"}, description="what time it is"),
        {"function": {"name": "now"}},
        {"name": "now", "parameters": {}},
        {"type": "web_search"},
        *(function(name=name) for name in ("a.b", "mcp__files__read", "files/read", "x:1", "-")),
        function(name="x" * 256),
    ],
)
def test_functions_that_are_taken(tool: dict[str, Any]) -> None:
    check_tools([tool])


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ({"type": "function"}, "tools[1].function` is missing"),
        ({}, "tools[1].function` is missing"),
        ({"function": None}, "tools[1].function` must be an object, not null"),
        ({"function": {}}, "tools[1].function.name` is missing"),
        ({"name": None}, "tools[1].name` must be a string, not null"),
        (function(name=5), "tools[1].function.name` must be a string, not 5"),
        (function(name=""), "tools[1].function.name` must have only letters a to z, digits and _"),
        (function(name="a b"), "tools[1].function.name` must have only"),
        (function(name="größe"), "tools[1].function.name` must have only"),
        (function(name="a\n"), "tools[1].function.name` must have only"),
        (function(name="x" * 257), "tools[1].function.name` must have only"),
        (function(parameters=[]), "tools[1].function.parameters` must be an object, not []"),
    ],
)
def test_functions_that_are_refused_are_named(tool: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_tools([function(), tool])
    error = caught.value
    assert error.message.startswith(f"`{problem}")
    assert error.message.startswith(f"`{error.field}`")


def test_the_client_reads_its_own_words() -> None:
    with pytest.raises(InvalidRequest, match=r"`functions\[0\]\.name` is missing"):
        check_tools([{"function": {}}], FieldNames({"tools[].function": "functions[]"}))


def test_types_of_apis_have_the_same_rule() -> None:
    adapter = TypeAdapter[str](FunctionName)
    assert adapter.validate_python("files/read") == "files/read"
    for name in ("", "a b", "x" * 257):
        with pytest.raises(ValidationError):
            adapter.validate_python(name)


DEEPEST = 200
"""Levels of nesting that JSON may have anywhere here; the parser's own limit."""


def with_tool(parameters: Any) -> GenerateRequest:
    return GenerateRequest(prompt="x", tools=({"parameters": parameters},))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def test_what_people_ask_can_be_read() -> None:
    check_readable(request())
    check_readable(with_tool(nested(100)))


@pytest.mark.parametrize("depth", range(DEEPEST - 12, DEEPEST + 1))
def test_what_is_accepted_can_be_read_by_agents(depth: int) -> None:
    """Also at the edge, where a frame's own levels make the difference."""
    deep = with_tool(nested(depth))
    try:
        check_readable(deep)
    except InvalidRequest as error:
        assert "no agent could read the request: Invalid JSON: recursion limit" in error.message
        assert depth > DEEPEST - 10
    else:
        decode_from_balancer(encode_from_balancer(Start(id=RequestId("r"), request=deep)))
        assert depth < DEEPEST


def test_numbers_that_were_short_in_the_body_count_as_long_as_they_are() -> None:
    numbers = [1e15] * 2_000_000  # five characters each with their comma, and here nineteen
    with pytest.raises(RequestTooLarge, match="38000"):
        check_readable(with_tool(numbers))


def test_what_cannot_nest_is_not_encoded_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(_message: object) -> bytes:
        raise AssertionError("a prompt is encoded once, for its agent")

    monkeypatch.setattr(request_checks, "encode_from_balancer", encode)
    check_readable(GenerateRequest(prompt=(1, 2, 3), stop=("x",), logit_bias={"1": 2.0}))
    check_readable(GenerateRequest(messages=(ChatMessage(role="user", content="x"),)))
    with pytest.raises(AssertionError):
        check_readable(with_tool({}))


@pytest.mark.parametrize(
    "deep",
    [
        {"tools": ({"parameters": nested(210)},)},
        {"grammar": JsonSchemaGrammar(type="json_schema", schema=nested(210))},
        {"chat_template_kwargs": {"x": nested(210)}},
    ],
)
def test_whatever_may_nest_is_looked_at(deep: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        check_readable(GenerateRequest(prompt="x", **deep))


def test_calls_of_messages_are_looked_at() -> None:
    calls = ({"function": {"arguments": nested(210)}},)
    messages = (ChatMessage(role="assistant", tool_calls=calls),)
    with pytest.raises(InvalidRequest):
        check_readable(GenerateRequest(messages=messages))


def test_one_call_may_come_to_so_many_bytes_of_requests() -> None:
    check_copies(MAX_TEXT_BYTES, field="n")
    with pytest.raises(
        RequestTooLarge, match="`n`: the requests of this call have 16777217 bytes"
    ) as caught:
        check_copies(MAX_TEXT_BYTES + 1, field="n")
    assert caught.value.field == "n"
