from itertools import count

from arriero.agent.generation.port import QueryId
from arriero.agent.link.decisions import AnswerQuery, WithdrawQuery
from arriero.agent.link.queries import MAX_QUERIES, OpenQueries
from arriero.shared.errors import EngineFailed, to_wire
from arriero.shared.inference import RequestId
from arriero.shared.messages import Ask, Reply
from arriero.shared.queries import Declined, Tokenize, Tokenized

ONE, TWO = QueryId(1), QueryId(2)

QUERY = Tokenize(text="x")
RESULT = Tokenized(tokens=(1,))
Q = RequestId("q")


def ask(name: str = "q") -> Ask:
    return Ask(id=RequestId(name), query=QUERY)


def test_asked_and_answered() -> None:
    queries = OpenQueries(count(1))
    assert queries.accept(ask()) == AnswerQuery(ONE, QUERY)
    assert Q in queries
    assert queries.answered(ONE, RESULT) == [Reply(id=Q, result=RESULT)]
    assert Q not in queries and len(queries) == 0
    queries.check_integrity()


def test_withdrawn_it_is_not_answered() -> None:
    queries = OpenQueries(count(1))
    queries.accept(ask())
    assert queries.withdraw(Q) == [WithdrawQuery(ONE)]
    assert queries.withdraw(Q) == []
    assert queries.answered(ONE, RESULT) == []


def test_a_name_may_come_again_and_is_another_query() -> None:
    queries = OpenQueries(count(1))
    queries.accept(ask())
    queries.withdraw(Q)
    assert queries.accept(ask()) == AnswerQuery(TWO, QUERY)
    assert queries.answered(ONE, RESULT) == []
    assert queries.answered(TWO, RESULT) == [Reply(id=Q, result=RESULT)]


def test_more_than_there_may_be_are_declined() -> None:
    queries = OpenQueries(count(1))
    for number in range(MAX_QUERIES):
        assert isinstance(queries.accept(ask(f"q{number}")), AnswerQuery)
    reply = queries.accept(ask("late"))
    assert isinstance(reply, Reply) and isinstance(reply.result, Declined)
    assert reply.result.error.code == "queue_full"
    assert len(queries) == MAX_QUERIES


def test_the_end_of_all() -> None:
    queries = OpenQueries(count(1))
    queries.accept(ask())
    queries.accept(ask("r"))
    error = EngineFailed("gone")
    assert queries.fail_all(error) == [
        Reply(id=RequestId(name), result=Declined(error=to_wire(error))) for name in "qr"
    ]
    assert queries.withdraw_all() == [WithdrawQuery(ONE), WithdrawQuery(TWO)]
    assert queries.answered(QueryId(2), RESULT) == []
