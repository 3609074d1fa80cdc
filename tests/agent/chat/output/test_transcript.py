from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.output.transcript import Gain, Stops, Transcript


def as_tokens(text: str, cuts: list[int]) -> list[bytes]:
    """The bytes of `text`, cut anywhere, within characters too."""
    data = text.encode()
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)] or [b""]


@given(
    st.text(),
    st.lists(st.integers(0, 10_000)),
    st.lists(st.integers(1, 4)),
)
def test_any_text_cut_anywhere_comes_back_whole(
    text: str, cuts: list[int], steps: list[int]
) -> None:
    pieces = as_tokens(text, cuts)
    transcript = Transcript(pieces.__getitem__, Stops())
    gains = []
    left = tuple(range(len(pieces)))
    for size in [*steps, len(left)]:
        gains.append(transcript.push(left[:size]))
        left = left[size:]
    gains.append(transcript.push(left))
    gains.append(transcript.flush())
    assert "".join(gain.text for gain in gains) == text
    assert sum((gain.tokens for gain in gains), ()) == tuple(range(len(pieces)))
    assert transcript.num_tokens == len(pieces)


@given(
    st.text("aé<|☃", max_size=20),
    st.text("aé<|☃", min_size=1, max_size=4),
    st.text("aé<|☃", max_size=20),
    st.lists(st.integers(0, 200)),
)
def test_a_stop_string_never_leaks_whatever_the_cuts(
    before: str, stop: str, after: str, cuts: list[int]
) -> None:
    text = before + stop + after
    pieces = as_tokens(text, cuts)
    transcript = Transcript(pieces.__getitem__, Stops((stop,)))
    gains = [transcript.push((token,)) for token in range(len(pieces))] + [transcript.flush()]
    assert transcript.is_stopped
    assert "".join(gain.text for gain in gains) == text[: text.index(stop)]


def test_tokens_after_the_stop_string_are_not_taken() -> None:
    transcript = Transcript([b"a", b"ST", b"OP", b"b"].__getitem__, Stops(("STOP",)))
    assert transcript.push((0, 1)) == Gain("a", (0, 1), (1, 3))
    assert transcript.push((2, 3)) == Gain("", (2,), (5,))
    assert transcript.is_stopped
    assert transcript.stop_string == "STOP"
    assert transcript.num_tokens == 3
    assert transcript.push((3,)) == Gain()


def test_a_character_leaves_with_the_token_that_completes_it() -> None:
    snowman = "☃".encode()
    transcript = Transcript([snowman[:1], snowman[1:]].__getitem__, Stops())
    assert transcript.push((0,)) == Gain("", (0,), (0,))
    assert transcript.push((1,)) == Gain("☃", (1,), (1,))
    assert transcript.flush() == Gain()


def test_an_unfinished_character_is_left_out_at_the_end() -> None:
    transcript = Transcript([b"ok\xe2\x98"].__getitem__, Stops())
    assert transcript.push((0,)) == Gain("ok", (0,), (2,))
    assert transcript.flush() == Gain()


def test_a_stop_token_ends_the_answer_and_is_no_part_of_it() -> None:
    transcript = Transcript([b"a", b"b", b"c"].__getitem__, Stops(tokens=frozenset({1})))
    assert transcript.push((0, 1, 2)) == Gain("a", (0,), (1,))
    assert (transcript.is_stopped, transcript.stop_string, transcript.num_tokens) == (True, None, 1)
    assert transcript.push((2,)) == Gain()


def test_a_stop_token_that_is_told() -> None:
    stops = Stops(tokens=frozenset({1}), are_included=True)
    transcript = Transcript([b"a", b"b", b"c"].__getitem__, stops)
    assert transcript.push((0, 1)) == Gain("ab", (0, 1), (1, 2))
    assert transcript.is_stopped
    assert transcript.push((2,)) == Gain()


def test_nothing_ends_an_answer_of_too_few_tokens() -> None:
    stops = Stops(("b",), tokens=frozenset({2}), min_tokens=4)
    transcript = Transcript([b"a", b"b", b"c"].__getitem__, stops)
    assert transcript.push((1, 2, 0)) == Gain("bca", (1, 2, 0), (1, 2, 3))
    assert not transcript.is_stopped
    assert transcript.push((1, 0)) == Gain("", (1,), (4,))
    assert transcript.stop_string == "b"
    transcript = Transcript([b"a", b"b", b"c"].__getitem__, stops)
    assert transcript.push((0, 0, 0, 0, 2)) == Gain("aaaa", (0,) * 4, (1, 2, 3, 4))
    assert transcript.is_stopped
