"""How tokens are chosen from the demo model's logits."""

from typing import Any

import numpy as np
import pytest

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.sampler import Chain, Greedy, make_sampler
from arriero.agent.engine.llama.vocab import LlamaVocab
from arriero.agent.engine.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Decoded, Run, Step

PROMPT = (40, 50, 60, 70)


def new(prompt: tuple[int, ...] = PROMPT, **choices: Any) -> NewSequence:
    return NewSequence(
        id=SequenceId(1),
        prompt=prompt,
        max_tokens=None,
        sampling=Sampling(**{"seed": 1, "temperature": 0, **choices}),
    )


def choose(engine: LlamaEngine, sequence: NewSequence) -> int:
    """The token after the sequence's prompt."""
    engine.open(sequence)
    try:
        run = Run(sequence.id, 0, 0, sequence.prompt, True)
        outcome = engine.execute(Step((0,), (run,), 0, len(sequence.prompt)))
        engine.execute(Step((0,), (), 0, 0))
    finally:
        engine.close(sequence.id)
    assert isinstance(outcome, Decoded)
    (token,) = outcome.tokens
    return token


def test_greedy_needs_no_chain(vocab: LlamaVocab) -> None:
    assert isinstance(make_sampler(new(), vocab), Greedy)
    for choices in ({"temperature": 1.0}, {"repeat_penalty": 1.2}):
        sampler = make_sampler(new(**choices), vocab)
        assert isinstance(sampler, Chain)
        sampler.free()


def test_greedy_takes_the_highest() -> None:
    row = np.array([0.5, 3.0, 2.9], np.float32)
    assert Greedy({}).choose(None, 0, row) == 1
    assert Greedy({1: -1.0}).choose(None, 0, row.copy()) == 2
    assert Greedy({0: 2.0, 2: 1.0}).choose(None, 0, row.copy()) == 2
    assert Greedy({1: -np.inf, 2: -np.inf}).choose(None, 0, row.copy()) == 0


def test_a_chain_agrees_with_the_highest(engine: LlamaEngine) -> None:
    best = choose(engine, new())
    assert choose(engine, new(temperature=1.0, top_k=1)) == best
    assert choose(engine, new(temperature=1e-3)) == best
    assert choose(engine, new(temperature=1.0, top_k=0, top_p=1e-6)) == best
    assert choose(engine, new(temperature=1.0, top_k=0, top_p=1.0, min_p=1.0)) == best


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_bias_forbids_and_demands(engine: LlamaEngine, temperature: float) -> None:
    best = choose(engine, new())
    choices = {"temperature": temperature}
    assert choose(engine, new(logit_bias=((best, -100.0),), **choices)) != best
    assert choose(engine, new(logit_bias=((123, 100.0),), **choices)) == 123


def test_a_bias_outside_the_vocabulary_does_nothing(engine: LlamaEngine) -> None:
    best = choose(engine, new())
    assert choose(engine, new(logit_bias=((10**9, 100.0), (-1, 100.0)))) == best


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_ignored_end_tokens_are_never_chosen(
    engine: LlamaEngine, vocab: LlamaVocab, temperature: float
) -> None:
    (end, *_) = vocab.end_tokens
    wanted = {"logit_bias": ((end, 100.0),), "temperature": temperature}
    assert choose(engine, new(**wanted)) == end
    assert choose(engine, new(ignore_eos=True, **wanted)) not in vocab.end_tokens


def test_penalties_look_at_the_prompt(engine: LlamaEngine) -> None:
    prompt = (*PROMPT, *[123] * 60)
    wanted = {"logit_bias": ((123, 100.0),)}
    assert choose(engine, new(prompt, **wanted)) == 123
    assert choose(engine, new(prompt, frequency_penalty=2.0, **wanted)) != 123
    # Beyond the last `penalty_last_n` tokens they are forgotten.
    assert choose(engine, new(prompt, frequency_penalty=2.0, penalty_last_n=9, **wanted)) == 123


def test_the_same_seed_gives_the_same_tokens(engine: LlamaEngine) -> None:
    def draw(seed: int) -> int:
        return choose(engine, new(seed=seed, temperature=5.0, top_k=0, top_p=1.0, min_p=0.0))

    first = [draw(seed) for seed in range(20)]
    assert first == [draw(seed) for seed in range(20)]
    assert len(set(first)) > 10


def test_the_highest_seed_is_no_wish_for_chance(engine: LlamaEngine) -> None:
    choices = {"seed": 2**32 - 1, "temperature": 5.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    assert len({choose(engine, new(**choices)) for _ in range(4)}) == 1


def test_top_k_leaves_only_the_best(engine: LlamaEngine) -> None:
    choices = {"temperature": 5.0, "top_k": 3, "top_p": 1.0, "min_p": 0.0}
    assert len({choose(engine, new(seed=seed, **choices)) for seed in range(40)}) <= 3
