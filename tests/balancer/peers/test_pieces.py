"""What is cut into pieces is the same again, and what is no answer is none."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.peers import pieces as module
from arriero.balancer.peers.pieces import TooLong, Unreadable, cut, joined
from arriero.balancer.store.news.records import MOST_PIECES, MOST_TEXT


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
