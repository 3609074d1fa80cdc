"""What a request's choices amount to."""

import pytest

from arriero.agent.engine.sampling.sampling import Dry, Sampling


@pytest.mark.parametrize(
    ("sampling", "is_greedy"),
    [
        (Sampling(seed=1), False),
        (Sampling(seed=1, temperature=0), True),
        (Sampling(seed=1, temperature=0, logit_bias=((5, 1.0),), ignore_eos=True), True),
        (Sampling(seed=1, temperature=0, repeat_penalty=1.1), False),
        (Sampling(seed=1, temperature=0, presence_penalty=0.5), False),
        (Sampling(seed=1, temperature=0, frequency_penalty=0.5), False),
        (Sampling(seed=1, temperature=0, repeat_penalty=1.1, repeat_last_n=0), True),
        (Sampling(seed=1, temperature=0, dry=Dry(multiplier=1.0)), False),
        (Sampling(seed=1, temperature=0, typical_p=0.9), False),
        (Sampling(seed=1, temperature=0, xtc_probability=0.5), False),
        (Sampling(seed=1, temperature=0, xtc_probability=0.5, xtc_threshold=0.6), True),
        (Sampling(seed=1, temperature=0, typical_p=0.9, mirostat=2), True),
    ],
)
def test_greedy_is_without_chance_and_without_history(sampling: Sampling, is_greedy: bool) -> None:
    assert sampling.is_greedy is is_greedy
