"""What comes of a question, however its answers come."""

import random

import pytest

from arriero.balancer.peers.pieces import cut
from arriero.balancer.peers.questions import MOST_OPEN, Questions, Replies, Reply
from arriero.balancer.store.news.records import Answered


def answers(by: str, body: bytes, *, to: str = "me", id: str = "q") -> list[Answered]:
    pieces = cut(body)
    return [Answered(id, to, by, n, len(pieces), text) for n, text in enumerate(pieces)]


LONG = random.Random(1).randbytes(10_000)


def test_all_answers_complete_it() -> None:
    questions = Questions("me")
    questions.ask("q", [("a", "one"), ("b", "two")])
    first, *rest = answers("b", LONG)
    assert rest and questions.heard(first) is None
    assert questions.heard(answers("a", b"1")[0]) is None
    assert [questions.heard(each) for each in rest][-1] == "q"
    assert questions.close("q") == Replies((Reply("one", b"1"), Reply("two", LONG)))
    assert len(questions) == 0


def test_those_that_are_silent_are_missing() -> None:
    questions = Questions("me")
    questions.ask("q", [("a", "one"), ("b", "two")])
    questions.heard(answers("b", LONG)[0])
    questions.heard(answers("a", b"1")[0])
    assert questions.close("q") == Replies((Reply("one", b"1"),), ("two",))
    assert questions.heard(answers("b", LONG)[1]) is None, "it is closed"


@pytest.mark.parametrize(
    "strange",
    [answers("c", b"")[0], answers("a", b"", to="you")[0], answers("a", b"", id="p")[0]],
)
def test_answers_of_others_and_for_others_are_not_heard(strange: Answered) -> None:
    questions = Questions("me")
    questions.ask("q", [("a", "one")])
    assert questions.heard(strange) is None
    assert questions.heard(answers("a", b"1")[0]) == "q"


@pytest.mark.parametrize(
    "broken", [answers("a", LONG)[1:], [Answered("q", "me", "a", 0, 1, "no answer")]]
)
def test_pieces_that_do_not_fit_are_no_answer(broken: list[Answered]) -> None:
    questions = Questions("me")
    questions.ask("q", [("a", "one")])
    assert questions.heard(broken[0]) == "q"
    assert questions.heard(answers("a", b"1")[0]) == "q"
    assert questions.close("q") == Replies((), ("one",))


def test_only_so_many_are_open() -> None:
    questions = Questions("me")
    for number in range(MOST_OPEN):
        assert questions.has_room
        questions.ask(str(number), [])
    assert not questions.has_room
    with pytest.raises(RuntimeError):
        questions.ask("one more", [])
