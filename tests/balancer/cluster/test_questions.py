"""What comes of a question, however its answers come."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.cluster import questions as module
from arriero.balancer.cluster.notifications import MOST_PIECES, MOST_TEXT, Answered
from arriero.balancer.cluster.questions import (
    MOST_OPEN,
    Questions,
    Replies,
    Reply,
    TooLong,
    Unreadable,
    cut,
    joined,
)


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


@given(st.binary(max_size=200))
def test_what_was_cut_is_joined(body: bytes) -> None:
    assert joined(cut(body)) == body


def test_what_compresses_badly_takes_several() -> None:
    body = random.Random(1).randbytes(20_000)
    pieces = cut(body)
    assert len(pieces) == 5 and all(0 < len(piece) <= MOST_TEXT for piece in pieces)
    assert joined(pieces) == body


def test_too_much_is_refused() -> None:
    with pytest.raises(TooLong):
        cut(random.Random(1).randbytes(MOST_PIECES * MOST_TEXT))


@given(st.lists(st.text(max_size=20), max_size=3))
def test_what_is_no_answer(pieces: list[str]) -> None:
    with pytest.raises(Unreadable):
        joined(pieces)


def test_what_grows_too_large_or_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    (piece,) = cut(b"x" * 100)
    with pytest.raises(Unreadable):
        joined([piece[:8]])
    monkeypatch.setattr(module, "MOST_BYTES", 99)
    with pytest.raises(Unreadable):
        joined([piece])
    with pytest.raises(TooLong):
        cut(b"x" * 100)
