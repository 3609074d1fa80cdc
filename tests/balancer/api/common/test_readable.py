from typing import Any

import pytest

from arriero.balancer.api.common import readable
from arriero.balancer.api.common.readable import MAX_TEXT_BYTES, check_copies, check_readable
from arriero.shared.errors import InvalidRequest, RequestTooLarge
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    JsonSchemaGrammar,
    RequestId,
)
from arriero.shared.messages import Start, decode_from_balancer, encode_from_balancer
from tests.balancer.fleet.builders import request

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

    monkeypatch.setattr(readable, "encode_from_balancer", encode)
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
