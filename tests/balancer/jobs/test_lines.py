"""Lines of a batch: what each asks, in which order, and how it is answered."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.jobs.lines import (
    GROUP_BYTES,
    LONGEST_PAUSE,
    MAX_ATTEMPTS,
    MAX_LINE,
    Again,
    Answered,
    Final,
    Line,
    answer_line,
    error_line,
    in_order,
    judge,
    parse_line,
)
from arriero.shared.errors import (
    AgentLost,
    EngineFailed,
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    QueueFull,
    QueueTimeout,
    RateLimited,
    RequestError,
    RequestTimeout,
    ShuttingDown,
    TokenTimeout,
    Unauthorized,
)

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


def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    line = parse_line(1, "\ufeff".encode() + json.dumps(GOOD).encode(), CHAT)
    assert (line.custom_id, line.problem) == ("a", None)


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


def end(
    error: RequestError | None, *, attempts: int = 0, refusals: int = 0, may_come: bool = False
) -> Again | Final:
    return judge(error, num_attempts=attempts, num_refusals=refusals, model_may_come=may_come)


def test_an_answer_is_the_result() -> None:
    assert end(None) == Final(is_error=False)


def test_so_is_an_error_that_no_retry_mends() -> None:
    assert end(InvalidRequest("x")) == Final(is_error=True)
    assert end(ModelNotFound("x")) == Final(is_error=True)


@pytest.mark.parametrize("error", [AgentLost("x"), EngineFailed("x"), TokenTimeout("x")])
def test_what_a_retry_may_mend_is_tried_a_few_times(error: RequestError) -> None:
    for attempts in range(MAX_ATTEMPTS - 1):
        again = end(error, attempts=attempts)
        assert isinstance(again, Again)
        assert again.is_attempt
        assert not again.for_all
    assert end(error, attempts=MAX_ATTEMPTS - 1) == Final(is_error=True)


@pytest.mark.parametrize(
    "error",
    [
        *(RateLimited("x"), QueueFull("x"), ShuttingDown("x"), QueueTimeout("x")),
        *(Unauthorized("x"), ModelFailed("x")),
    ],
)
def test_what_is_not_its_fault_never_counts(error: RequestError) -> None:
    again = end(error, attempts=MAX_ATTEMPTS, refusals=1000)
    assert isinstance(again, Again)
    assert not again.is_attempt
    assert again.pause == LONGEST_PAUSE
    assert again.for_all == (not isinstance(error, QueueTimeout | ModelFailed))


def test_limits_say_how_long_to_wait() -> None:
    again = end(RateLimited("x", retry_after=45.0))
    assert isinstance(again, Again)
    assert again.pause == 45.0


def test_a_model_may_come_back() -> None:
    assert isinstance(end(ModelNotFound("x"), may_come=True), Again)


def test_pauses_grow() -> None:
    pauses = [
        again.pause for n in range(9) if isinstance(again := end(QueueFull("x"), refusals=n), Again)
    ]
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
