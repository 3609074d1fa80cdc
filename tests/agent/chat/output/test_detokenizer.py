"""From tokens to whole characters."""

from codecs import getincrementaldecoder
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.output.transcript import Detokenizer


def bytewise() -> Detokenizer:
    return Detokenizer(lambda token: bytes([token]))


def test_plain_text_leaves_at_once() -> None:
    assert bytewise().push(b"abc") == "abc"


def test_a_character_leaves_when_its_last_byte_is_there() -> None:
    detokenizer = bytewise()
    euro = "€".encode()
    assert detokenizer.push(euro[:1]) == ""
    assert detokenizer.push(euro[1:2]) == ""
    assert detokenizer.push(euro[2:] + b"!") == "€!"


def test_an_unfinished_character_is_left_out() -> None:
    assert bytewise().push("aé".encode()[:2]) == "a"


def test_bytes_that_are_no_text_do_not_stop_it() -> None:
    assert bytewise().push(b"a\xffb") == "a\ufffdb"


def test_no_tokens_no_text() -> None:
    assert bytewise().push(()) == ""


@given(text=st.text(), cuts=st.lists(st.integers(0, 400)))
def test_however_it_is_cut(text: str, cuts: list[int]) -> None:
    data = text.encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    detokenizer = bytewise()
    pieces = [detokenizer.push(data[start:end]) for start, end in pairwise(edges)]
    assert "".join(pieces) == text


@given(data=st.binary())
def test_any_bytes_become_what_python_makes_of_them(data: bytes) -> None:
    detokenizer = bytewise()
    text = "".join(detokenizer.push((byte,)) for byte in data)
    assert text == getincrementaldecoder("utf-8")("replace").decode(data)
