import pytest

from arriero.balancer.fleet.decisions import Settle
from arriero.balancer.fleet.lifecycle import NotServed
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.queries.query import QueryLifecycle, QueryRequest, fits
from arriero.shared.errors import QueueTimeout, RequestTimeout
from arriero.shared.inference import RequestId
from arriero.shared.queries import (
    DescribeTokenizer,
    Embed,
    Embedded,
    Query,
    Rank,
    Ranked,
    Result,
    Score,
    Tokenize,
    Tokenized,
    TokenizerDescription,
    Vector,
)

LIMITS = Limits(buffered_request_timeout=30.0, request_timeout=100.0)
PARTS = (Embed(inputs=("a", "b")), Embed(inputs=("c",)))
ONE, TWO = Vector(vector="AAAA", num_tokens=2), Vector(vector="AAAA", num_tokens=3)


def lifecycle() -> QueryLifecycle:
    return QueryLifecycle(RequestId("q"), QueryRequest(kind="embed", parts=PARTS), LIMITS, 5.0)


def test_results_are_in_the_order_of_the_parts() -> None:
    query = lifecycle()
    query.results[1] = Embedded(vectors=(TWO,))
    assert not query.is_complete
    query.results[0] = Embedded(vectors=(ONE, ONE))
    assert query.is_complete
    assert query.answer() == Settle(query.id, (query.results[0], query.results[1]))


def test_deadlines() -> None:
    query = lifecycle()
    assert (query.deadline, query.overdue(34.9)) == (35.0, None)
    assert isinstance(query.overdue(35.0), QueueTimeout)
    error = query.overdue(35.0, NotServed("no agent is connected"))
    assert error is not None and error.message.endswith(": no agent is connected")
    query.leave_queue("box", 20.0)
    assert (query.deadline, query.overdue(35.0)) == (105.0, None)
    assert isinstance(query.overdue(105.0), RequestTimeout)


def test_what_is_left_of_the_wait() -> None:
    query = lifecycle()
    query.leave_queue("box", 20.0)
    query.join_queue(50.0)
    assert (query.view(None, 51.0).state, query.view(None, 51.0).waited_seconds) == ("queued", 16.0)
    assert isinstance(query.overdue(65.0), QueueTimeout)
    query.leave_queue("other", 60.0)
    assert (query.deadline, query.waited(70.0)) == (105.0, 25.0)
    query.join_queue(101.0)
    assert isinstance(query.overdue(105.0), RequestTimeout)


def test_how_it_ended() -> None:
    query = lifecycle()
    query.leave_queue("box", 6.0)
    query.leave_queue("other", 8.0)
    query.results[0] = Embedded(vectors=(ONE, TWO))
    ending = query.finish("answered", 9.0).ending
    assert ending.model == query.asked.model
    assert (ending.code, ending.agent, ending.kind, ending.num_inputs) == (
        *("answered", "other", "embed", 3),
    )
    assert ending.usage.prompt_tokens == 5
    assert (ending.timings.queue_ms, ending.timings.total_ms) == (1000, 4000)


def test_as_others_see_it() -> None:
    query = lifecycle()
    assert (query.view(None, 7.0).state, query.view(None, 7.0).waited_seconds) == ("queued", 2.0)
    query.leave_queue("box", 8.0)
    view = query.view(None, 10.0)
    assert (view.state, view.waited_seconds, view.age_seconds) == ("assigned", 3.0, 5.0)


@pytest.mark.parametrize(
    ("query", "result", "is_one"),
    [
        (PARTS[0], Embedded(vectors=(ONE, TWO)), True),
        (PARTS[0], Embedded(vectors=(ONE,)), False),
        (PARTS[0], Tokenized(tokens=()), False),
        (Rank(query="q", documents=("a",)), Ranked(scores=(Score(),)), True),
        (Rank(query="q", documents=("a",)), Ranked(scores=()), False),
        (Tokenize(text="a"), Tokenized(tokens=()), True),
        (DescribeTokenizer(), TokenizerDescription(), True),
        (DescribeTokenizer(), Tokenized(tokens=()), False),
    ],
)
def test_what_is_an_answer_at_all(query: Query, result: Result, is_one: bool) -> None:
    assert fits(query, result) == is_one
