"""Lines of a batch: what each asks, in which order, and how it is answered."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.jobs.core.lines import (
    GROUP_BYTES,
    MAX_LINE,
    Answered,
    Line,
    answer_line,
    error_line,
    in_order,
    parse_line,
)
from arriero.shared.errors import RequestTimeout

CHAT = "/v1/chat/completions"
GOOD = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "m", "messages": []}}


def parsed(value: object, number: int = 7) -> Line:
    return parse_line(number, json.dumps(value).encode(), CHAT)


def asking(number: int, text: str, **more: object) -> Line:
    body = {"messages": [{"role": "user", "content": text}], **more}
    return parsed(GOOD | {"custom_id": f"c{number}", "body": body}, number)


def test_a_line_is_a_request() -> None:
    line = parsed(GOOD)
    assert (line.number, line.custom_id, line.url, line.model) == (7, "a", CHAT, "m")
    assert json.loads(line.body) == GOOD["body"]
    assert line.problem is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"custom_id": None}, "custom_id"),
        ({"custom_id": ""}, "custom_id"),
        ({"custom_id": "x" * 513}, "custom_id"),
        ({"method": "GET"}, "method"),
        ({"url": "/v1/completions"}, "url"),
        ({"body": []}, "body"),
        ({"body": {"stream": True}}, "body.stream"),
        ({"body": {"background": True}}, "body.background"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], field: str) -> None:
    problem = parsed(GOOD | change).problem
    assert problem is not None
    assert problem.field == field
    assert f"`{field}`" in problem.message


def test_a_problem_keeps_the_id_where_there_is_one() -> None:
    assert parsed(GOOD | {"method": "GET"}).custom_id == "a"
    assert parsed([]).custom_id is None


@given(st.binary(max_size=60))
def test_whatever_stands_in_a_line_never_raises(text: bytes) -> None:
    assert parse_line(1, text, CHAT).problem is not None


def test_a_line_that_is_too_long_is_not_read() -> None:
    problem = parse_line(1, b" " * (MAX_LINE + 1), CHAT).problem
    assert problem is not None
    assert problem.code == "request_too_large"


def test_common_beginnings_stand_together_in_the_order_of_the_first() -> None:
    one, two = "one " * GROUP_BYTES, "two " * GROUP_BYTES
    lines = [asking(1, two + "b"), asking(2, one), asking(3, "short"), asking(4, two + "a")]
    assert [line.number for line in in_order(lines)] == [1, 4, 2, 3]


def test_a_long_common_beginning_makes_a_group() -> None:
    text = "x" * GROUP_BYTES
    assert asking(1, text + "a").group == asking(2, text + "b").group is not None
    assert asking(3, "y" + text).group != asking(1, text).group
    assert asking(4, "short").group is None


def test_an_answer_is_as_openai_writes_it() -> None:
    answered = Answered(status=200, body=b'{"x":1}', request_id="r1")
    told = answer_line("batch_b", parsed(GOOD), answered)
    assert told.endswith(b"\n")
    assert json.loads(told) == {
        "id": "batch_req_b_7",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "r1", "body": {"x": 1}},
        "error": None,
    }


def test_so_is_an_error() -> None:
    told = error_line("batch_b", parsed(GOOD), RequestTimeout("too late"), code="batch_expired")
    assert json.loads(told) == {
        "id": "batch_req_b_7",
        "custom_id": "a",
        "response": None,
        "error": {"code": "batch_expired", "message": "too late"},
    }
    unread = error_line("batch_b", parse_line(3, b"{", CHAT), RequestTimeout("x"))
    assert json.loads(unread)["custom_id"] is None
