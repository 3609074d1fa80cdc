from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.output.transcript import Gain, Transcript


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
    transcript = Transcript(pieces.__getitem__, ())
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
    transcript = Transcript(pieces.__getitem__, (stop,))
    gains = [transcript.push((token,)) for token in range(len(pieces))] + [transcript.flush()]
    assert transcript.is_stopped
    assert "".join(gain.text for gain in gains) == text[: text.index(stop)]


def test_tokens_after_the_stop_string_are_not_taken() -> None:
    transcript = Transcript([b"a", b"ST", b"OP", b"b"].__getitem__, ("STOP",))
    assert transcript.push((0, 1)) == Gain("a", (0, 1), (1, 3))
    assert transcript.push((2, 3)) == Gain("", (2,), (5,))
    assert transcript.is_stopped
    assert transcript.stop_string == "STOP"
    assert transcript.num_tokens == 3
    assert transcript.push((3,)) == Gain()


def test_a_character_leaves_with_the_token_that_completes_it() -> None:
    snowman = "☃".encode()
    transcript = Transcript([snowman[:1], snowman[1:]].__getitem__, ())
    assert transcript.push((0,)) == Gain("", (0,), (0,))
    assert transcript.push((1,)) == Gain("☃", (1,), (1,))
    assert transcript.flush() == Gain()


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    transcript = Transcript([b"ok\xe2\x98"].__getitem__, ())
    assert transcript.push((0,)) == Gain("ok", (0,), (2,))
    assert transcript.flush() == Gain("�")


def test_a_stop_string_can_be_complete_only_at_the_end() -> None:
    transcript = Transcript([b"ok\xe2"].__getitem__, ("�",))
    assert transcript.push((0,)).text == "ok"
    assert transcript.flush() == Gain()
    assert transcript.is_stopped
