from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.output.transcript import StopStrings

STOPS = st.lists(st.text("ab<", min_size=1, max_size=5), max_size=4)
PIECES = st.lists(st.text("ab<c", max_size=6), max_size=12)


def whole(text: str, stops: list[str]) -> tuple[str, str | None]:
    """What should leave of `text`: the stop string that is complete first wins."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(PIECES, STOPS)
def test_cuts_change_nothing(pieces: list[str], stops: list[str]) -> None:
    matcher = StopStrings(stops)
    text = "".join([matcher.push(piece) for piece in pieces]) + matcher.flush()
    assert (text, matcher.found) == whole("".join(pieces), stops)


@given(PIECES, STOPS)
def test_holds_back_exactly_what_could_become_a_stop_string(
    pieces: list[str], stops: list[str]
) -> None:
    matcher = StopStrings(stops)
    free = "".join([matcher.push(piece) for piece in pieces])
    if matcher.found is None:
        text = "".join(pieces)
        beginnings = {stop[:end] for stop in stops for end in range(len(stop))}
        could_become = max(
            (n for n in range(len(text) + 1) if text[len(text) - n :] in beginnings), default=0
        )
        assert free == text[: len(text) - could_become]


def test_text_leaves_once_it_can_be_no_stop_string() -> None:
    matcher = StopStrings(["###", "#!"])
    assert [matcher.push(piece) for piece in ("a#", "#", "b", "#", "x")] == [
        "a",
        "",
        "##b",
        "",
        "#x",
    ]


def test_nothing_leaves_after_a_stop_string() -> None:
    matcher = StopStrings(["end"])
    assert matcher.push("the end of it") == "the "
    assert matcher.found == "end"
    assert matcher.push("more") == ""
    assert matcher.flush() == ""


def test_of_two_that_end_together_the_longer_is_cut() -> None:
    matcher = StopStrings(["b", "ab"])
    assert matcher.push("xab") == "x"
    assert matcher.found == "ab"


def test_what_was_held_leaves_at_the_end_once() -> None:
    matcher = StopStrings(["</answer>"])
    assert matcher.push("1 </ans") == "1 "
    assert (matcher.flush(), matcher.flush()) == ("</ans", "")


@given(PIECES, STOPS)
def test_a_stop_string_that_is_told_is_the_end_of_the_text(
    pieces: list[str], stops: list[str]
) -> None:
    matcher = StopStrings(stops, are_included=True)
    text = "".join([matcher.push(piece) for piece in pieces]) + matcher.flush()
    before, found = whole("".join(pieces), stops)
    assert (text, matcher.found) == (before + (found or ""), found)


@given(PIECES, PIECES, STOPS)
def test_early_text_ends_nothing_but_may_begin_what_does(
    early: list[str], pieces: list[str], stops: list[str]
) -> None:
    matcher = StopStrings(stops)
    first = "".join([matcher.push(piece, may_end=False) for piece in early])
    assert matcher.found is None
    text = first + "".join([matcher.push(piece) for piece in pieces]) + matcher.flush()
    start = "".join(early)
    both = start + "".join(pieces)
    ends = [
        (end, stop)
        for end in range(len(start) + 1, len(both) + 1)
        for stop in sorted(stops, key=len, reverse=True)
        if both[:end].endswith(stop)
    ]
    end, stop = ends[0] if ends else (len(both), "")
    assert (text, matcher.found or "") == (both[: end - len(stop)], stop)
