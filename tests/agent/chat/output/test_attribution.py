"""Log-probabilities go with the text that their tokens made, wherever that is cut."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.output.attribution import Attribution, ReasoningCount
from arriero.agent.chat.output.transcript import Detokenizer, Stops, Transcript
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.shared.inference import LogProb, TokenLogProbs


class Written(Attribution):
    """One that is told of tokens as a transcript takes them."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces.__getitem__)
        self._transcript = Transcript(pieces.__getitem__, Stops())

    def take(self, *tokens: int) -> None:
        gain = self._transcript.push(tokens)
        self.push(gain.ends, [LogProbs(token, -1.0) for token in tokens])


def ids(found: tuple[TokenLogProbs, ...]) -> list[int]:
    return [each.chosen.token for each in found]


def test_a_token_goes_with_its_first_character() -> None:
    subject = Written([b"ab", b"cd"])
    subject.take(0, 1)
    assert ids(subject.leave(1, is_shown=True)) == [0]
    assert ids(subject.leave(1, is_shown=True)) == []
    assert ids(subject.leave(2, is_shown=True)) == [1]
    assert subject.rest() == ()


def test_parts_of_a_character_go_with_it() -> None:
    snowman = "☃".encode()
    subject = Written([snowman[:1], snowman[1:2], snowman[2:], b"x"])
    subject.take(0, 1)
    assert subject.leave(0, is_shown=True) == ()
    subject.take(2, 3)
    assert ids(subject.leave(1, is_shown=True)) == [0, 1, 2]
    assert ids(subject.leave(1, is_shown=True)) == [3]


def test_what_is_not_shown_is_not_told() -> None:
    subject = Written([b"<think>", b"hm", b"</think>x", b"y"])
    subject.take(0, 1, 2, 3)
    assert subject.leave(7, is_shown=False) == ()
    assert ids(subject.leave(2, is_shown=True)) == [1]
    assert subject.leave(8, is_shown=False) == ()
    # Half of it is shown after all.
    assert ids(subject.leave(1, is_shown=True)) == [2]
    assert ids(subject.leave(1, is_shown=True)) == [3]


def test_a_token_without_text_goes_with_what_follows_or_comes_last() -> None:
    subject = Written([b"", b"a"])
    subject.take(0, 1, 0)
    assert ids(subject.leave(1, is_shown=True)) == [0, 1]
    assert ids(subject.rest()) == [0]


def test_what_was_cut_off_is_not_in_the_rest_of_a_shown_token() -> None:
    subject = Written([b"ab", b"ST", b"OP"])
    subject.take(0, 1, 2)
    assert ids(subject.leave(1, is_shown=True)) == [0]


def test_they_carry_the_bytes_of_their_tokens() -> None:
    subject = Written([b"\xe2", b"b"])
    subject.push((0,), [LogProbs(0, -0.5, ((1, -0.1), (0, -0.5)))])
    (found,) = subject.rest()
    first = LogProb(0, b"\xe2", -0.5)
    assert found == TokenLogProbs(first, (LogProb(1, b"b", -0.1), first))


@given(
    st.lists(st.binary(max_size=4), max_size=12),
    st.lists(st.integers(0, 5), max_size=30),
)
def test_all_are_told_once_and_in_order(pieces: list[bytes], cuts: list[int]) -> None:
    detokenizer = Detokenizer(pieces.__getitem__)
    text = detokenizer.push(range(len(pieces)))
    subject = Written(pieces)
    subject.take(*range(len(pieces)))
    found: list[int] = []
    left = len(text)
    for size in [*cuts, left]:
        found += ids(subject.leave(min(size, left), is_shown=True))
        left -= min(size, left)
    assert found + ids(subject.rest()) == list(range(len(pieces)))


def test_log_probabilities_of_tokens_that_were_not_taken_are_dropped() -> None:
    subject = Attribution([b"a", b"b"].__getitem__)
    subject.push((1,), [LogProbs(0, -1.0), LogProbs(1, -1.0)])
    assert ids(subject.leave(1, is_shown=True)) == [0]
    assert subject.rest() == ()


def test_a_token_counts_where_its_first_character_does() -> None:
    count = ReasoningCount()
    count.push([3, 6, 9])
    count.leave(4, is_reasoning=True)
    assert count.total(is_reasoning=False) == 2
    count.leave(5, is_reasoning=False)
    assert count.total(is_reasoning=False) == 2


def test_a_token_without_a_character_goes_with_what_follows() -> None:
    count = ReasoningCount()
    count.push([2, 2, 2, 4])
    count.leave(2, is_reasoning=False)
    assert count.total(is_reasoning=False) == 0
    count.leave(1, is_reasoning=True)
    assert count.total(is_reasoning=False) == 3


def test_what_is_held_back_is_what_it_will_be_taken_for() -> None:
    count = ReasoningCount()
    count.push([1, 2])
    assert (count.total(is_reasoning=True), count.total(is_reasoning=False)) == (2, 0)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_each_token_counts_by_its_first_character(
    regions: list[tuple[int, bool]], lengths: list[int]
) -> None:
    kinds = [is_reasoning for length, is_reasoning in regions for _ in range(length)]
    count = ReasoningCount()
    expected = position = 0
    ends = []
    for length in lengths:
        expected += kinds[position] if position < len(kinds) else 0
        position = min(position + length, len(kinds))
        ends.append(position)
    count.push(ends)
    for length, is_reasoning in regions:
        count.leave(length, is_reasoning=is_reasoning)
    assert count.total(is_reasoning=False) == expected
