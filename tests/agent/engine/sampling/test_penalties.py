"""Penalties kept in arrays, against counting the last tokens anew."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.sampling.penalties import Penalties
from arriero.agent.engine.sampling.sampling import Sampling

SIZE = 6


@given(
    prompt=st.lists(st.integers(0, SIZE - 1), max_size=30),
    said=st.lists(st.integers(0, SIZE - 1), max_size=30),
    last_n=st.sampled_from([1, 2, 5, 2**31 - 1]),
)
def test_counts_are_those_of_the_last_tokens(
    prompt: list[int], said: list[int], last_n: int
) -> None:
    sampling = Sampling(seed=0, frequency_penalty=1.0, presence_penalty=0.5, repeat_last_n=last_n)
    penalties = Penalties(sampling, prompt)
    for token in said:
        penalties.accept(token)
    row = np.zeros(SIZE, np.float32)
    penalties.apply(row)
    counts = Counter((prompt + said)[-last_n:])
    assert row.tolist() == [-(counts[n] + 0.5) if counts[n] else 0.0 for n in range(SIZE)]
