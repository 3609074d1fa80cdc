"""Whatever the sampling, a constrained sequence only gets tokens that its constraint allows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher

from arriero.agent.engine.llama.sampler import Sampler
from arriero.agent.engine.sampling import Dry, Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId
from tests.agent.saying import at_once, demo_grammars, demo_vocab, fits

PATTERN = "(yes|no|perhaps)( [a-z]{1,4}){2}[.!]"
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.0},
    {"temperature": 1.0, "top_k": 0},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.3},
    {"temperature": 1.0, "top_k": 0, "top_n_sigma": 1.0},
    {"temperature": 1.0, "typical_p": 0.5},
    {"temperature": 1.0, "top_k": 0, "typical_p": 0.5, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1.0, "xtc_probability": 1.0, "xtc_threshold": 0.01},
    {"temperature": 0, "xtc_probability": 1.0, "xtc_threshold": 0.01},
    {"temperature": 1.0, "mirostat": 1},
    {"temperature": 1.0, "mirostat": 2},
    {"temperature": 1.0, "repeat_penalty": 2.0, "presence_penalty": 2.0},
    {"temperature": 1.0, "dry": Dry(multiplier=2.0)},
    {"temperature": 1.0, "logit_bias": ((50, 100.0), (7, -100.0))},
]


@pytest.mark.parametrize("choices", SAMPLINGS, ids=str)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.0, 1.0, 30.0]))
def test_every_choice_fits(choices: dict[str, Any], seed: int, scale: float) -> None:
    vocab = demo_vocab()
    constraint = demo_grammars().compile(LLMatcher.grammar_from_regex(PATTERN))
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=(40, 50, 60),
        max_tokens=None,
        sampling=Sampling(**{"seed": seed, **choices}),
        constraint=constraint,
    )
    sampler = Sampler(sequence, vocab, constraint.begin(at_once))
    chance = np.random.default_rng(seed)
    tokens: list[int] = []
    for _ in range(40):
        row = (scale * chance.standard_normal(vocab.size)).astype(np.float32)
        token = sampler.choose(row)
        if token in vocab.end_tokens:
            break
        tokens.append(token)
    else:
        pytest.fail(f"it never came to its end: {tokens}")
    assert sampler.failure is None
    assert fits(constraint, b"".join(map(vocab.piece, tokens)).decode())


def test_log_probabilities_are_of_the_model_not_of_the_constraint() -> None:
    vocab = demo_vocab()
    constraint = demo_grammars().compile(LLMatcher.grammar_from_regex("a"))
    sampling = Sampling(seed=1, temperature=0, top_log_probs=1)
    sequence = NewSequence(id=SequenceId(1), prompt=(1,), max_tokens=None, sampling=sampling)
    sampler = Sampler(sequence, vocab, constraint.begin(at_once))
    row = np.zeros(vocab.size, np.float32)
    row[500] = 5.0
    token = sampler.choose(row)
    assert vocab.piece(token) == b"a"
    (log_probs,) = sampler.take_log_probs()
    assert log_probs.top[0][0] == 500
    assert log_probs.log_prob < log_probs.top[0][1] < 0
