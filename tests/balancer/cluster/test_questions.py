"""What comes of a question, however its answers come."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.cluster import questions as module
from arriero.balancer.cluster.notifications import MOST_TEXT, Answered
from arriero.balancer.cluster.questions import (
    MOST_OPEN,
    Questions,
    Replies,
    Reply,
    TooLong,
    Unreadable,
    packed,
    unpacked,
)


def answer(by: str, body: bytes, *, to: str = "me", id: str = "q") -> Answered:
    return Answered(id, to, by, packed(body))


def test_all_answers_complete_it() -> None:
    questions = Questions("me")
    questions.ask("q", [("a", "one"), ("b", "two")])
    assert questions.heard(answer("b", b"2")) is None
    assert questions.heard(answer("b", b"3")) is None, "each is heard once"
    assert questions.heard(answer("a", b"1")) == "q"
    assert questions.close("q") == Replies((Reply("one", b"1"), Reply("two", b"2")))
    assert len(questions) == 0


def test_those_that_are_silent_are_missing() -> None:
    questions = Questions("me")
    questions.ask("q", [("a", "one"), ("b", "two")])
    questions.heard(answer("a", b"1"))
    assert questions.close("q") == Replies((Reply("one", b"1"),), ("two",))
    assert questions.heard(answer("b", b"2")) is None, "it is closed"


@pytest.mark.parametrize(
    "strange",
    [answer("c", b""), answer("a", b"", to="you"), answer("a", b"", id="p")],
)
def test_answers_of_others_and_for_others_are_not_heard(strange: Answered) -> None:
    questions = Questions("me")
    questions.ask("q", [("a", "one")])
    assert questions.heard(strange) is None
    assert questions.heard(answer("a", b"1")) == "q"


def test_what_cannot_be_read_is_no_answer() -> None:
    questions = Questions("me")
    questions.ask("q", [("a", "one")])
    assert questions.heard(Answered("q", "me", "a", "no answer")) == "q"
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
def test_what_was_packed_is_unpacked(body: bytes) -> None:
    assert unpacked(packed(body)) == body


def test_too_much_is_refused() -> None:
    with pytest.raises(TooLong):
        packed(random.Random(1).randbytes(MOST_TEXT))


@given(st.text(max_size=20))
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(Unreadable):
        unpacked(text)


def test_what_grows_too_large_or_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    text = packed(b"x" * 100)
    with pytest.raises(Unreadable):
        unpacked(text[:8])
    monkeypatch.setattr(module, "MOST_BYTES", 99)
    with pytest.raises(Unreadable):
        unpacked(text)
    with pytest.raises(TooLong):
        packed(b"x" * 100)
