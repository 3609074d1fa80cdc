"""Runs of tokens that an answer must not have."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.sampling.bad_words import BadWords

SIZE = 8
TOKENS = st.integers(0, 3)
RUNS = st.lists(TOKENS, min_size=1, max_size=3).map(tuple)


def ruled_out(words: BadWords) -> set[int]:
    row = np.zeros(SIZE, np.float32)
    words.apply(row)
    return {*np.flatnonzero(np.isneginf(row)).tolist()}


def test_what_would_complete_a_word() -> None:
    words = BadWords([(1,), (2, 3), (2, 2, 4)], [])
    assert ruled_out(words) == {1}
    words.accept(2)
    assert ruled_out(words) == {1, 3}
    words.accept(2)
    assert ruled_out(words) == {1, 3, 4}
    words.accept(5)
    assert ruled_out(words) == {1}


@given(words=st.lists(RUNS, max_size=4), said=st.lists(TOKENS, max_size=6), at=st.integers(0, 6))
def test_no_word_is_ever_completed(words: list[tuple[int, ...]], said: list[int], at: int) -> None:
    """Wherever the sampler begins: what was said before counts."""
    place = min(at, len(said))
    sampler = BadWords(words, said[:place])
    for token in said[place:]:
        sampler.accept(token)
    expected = {
        word[-1] for word in words if len(word) == 1 or tuple(said[1 - len(word) :]) == word[:-1]
    }
    assert ruled_out(sampler) == expected
