import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.word_wrap import WordWrap


def wrapped(width: int, *pieces: str) -> str:
    wrap = WordWrap(width)
    return "".join([*map(wrap.push, pieces), wrap.flush()])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("one twothree four", ["one", "twothree", "four"]),
        ("one  two", ["one  two"]),
        ("one twos  three", ["one twos", "three"]),
        ("a longest-word b", ["a", "longest-word", "b"]),
        ("one\ntwo  \n\n  three ", ["one", "two", "", "  three"]),
        ("", [""]),
    ],
)
def test_lines_break_between_words(text: str, lines: list[str]) -> None:
    assert wrapped(8, text).split("\n") == lines


def test_a_word_is_shown_as_soon_as_it_has_ended() -> None:
    wrap = WordWrap(8)
    assert [wrap.push(piece) for piece in ("on", "e t", "wo", " thr")] == ["", "one", "", " two"]
    assert wrap.flush() == "\nthr"


@given(st.lists(st.text("ab \n", max_size=6)), st.integers(1, 9))
def test_pieces_make_no_difference_and_no_word_is_lost(pieces: list[str], width: int) -> None:
    text = wrapped(width, *pieces)
    assert text == wrapped(width, "".join(pieces))
    assert text.split() == "".join(pieces).split()
    assert all(len(line) <= width or len(line.split()) == 1 for line in text.split("\n"))
