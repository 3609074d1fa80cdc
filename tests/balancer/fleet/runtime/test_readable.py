from typing import Any

import pytest

from arriero.balancer.fleet.runtime.readable import check_readable
from arriero.shared.errors import InvalidRequest, RequestTooLarge
from arriero.shared.inference import GenerateRequest, RequestId
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
