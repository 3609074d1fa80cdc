import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.common.parts import (
    MAX_PART_BYTES,
    MAX_PART_INPUTS,
    Faulty,
    first_fault,
    in_parts,
    only,
    scores_of,
    vectors_of,
)
from arriero.shared.errors import PromptTooLong, to_wire
from arriero.shared.queries import Embedded, EmbedInput, Ranked, Score, Tokenized, Vector

TEXTS = st.text(min_size=1, max_size=9).map(lambda text: text * 1000)
IDS = st.integers(1, 8000).map(lambda size: (7,) * size)


def size_of(given: EmbedInput) -> int:
    return len(given.encode("utf-8", "replace")) if isinstance(given, str) else 4 * len(given)


@given(st.lists(st.text(min_size=1, max_size=3) | TEXTS | IDS, max_size=60))
def test_parts_are_small_and_have_everything_in_order(inputs: list[EmbedInput]) -> None:
    parts = in_parts(inputs)
    assert [each for part in parts for each in part] == inputs
    for part in parts:
        assert 1 <= len(part) <= MAX_PART_INPUTS
        assert len(part) == 1 or sum(map(size_of, part)) <= MAX_PART_BYTES


@given(st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=60))
def test_small_inputs_fill_their_parts(inputs: list[str]) -> None:
    assert [len(part) for part in in_parts(inputs)[:-1]] == [MAX_PART_INPUTS] * (
        (len(inputs) - 1) // MAX_PART_INPUTS
    )


def test_answers_are_put_together() -> None:
    one, two, three = (Vector(num_tokens=n) for n in (1, 2, 3))
    assert vectors_of([Embedded(vectors=(one, two)), Embedded(vectors=(three,))]) == [
        *(one, two, three)
    ]
    assert scores_of([Ranked(scores=(Score(score=1.0),))]) == [Score(score=1.0)]
    assert only([Tokenized(tokens=(1,))], Tokenized).tokens == (1,)


def test_another_kind_of_answer_is_our_mistake() -> None:
    with pytest.raises(TypeError, match="answered with tokenized instead of Embedded"):
        vectors_of([Tokenized(tokens=())])


def test_the_first_fault() -> None:
    error = PromptTooLong("it is long")
    good, bad = Vector(num_tokens=1), Vector(error=to_wire(error))
    assert first_fault([good, good]) is None
    assert first_fault([good, bad, bad]) == Faulty(1, error)
