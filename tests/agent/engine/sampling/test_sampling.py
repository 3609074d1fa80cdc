"""What a request's choices amount to."""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Dry, Sampling
from arriero.agent.engine.sampling.selection import Row
from arriero.agent.engine.sequence import NewSequence, SequenceId
from tests.agent.engine.fake_engine import FakeVocab

ROOT = Path(__file__).parents[4]


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


def test_each_choice_is_read_by_the_sampler() -> None:
    """What no file of the engine reads has no effect."""
    source = "".join(file.read_text() for file in (ROOT / "agent" / "engine").rglob("*.py"))
    read = {*re.findall(r"sampling\.(\w+)", source), *re.findall(r"\bself\.(\w+)", source)}
    assert [each.name for each in fields(Sampling) if each.name not in read] == []


# ---- a sampler that goes on after another's tokens


SIZE = 40
PROMPT = (3, 4, 5, 6, 3, 4, 5)
CHOICES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.0, "repeat_penalty": 1.8, "repeat_last_n": 5},
    {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    {"dry": Dry(multiplier=3.0, penalty_last_n=8, breakers={9: ((),), 6: ((3,),)})},
    {"temperature": 0.0, "dry": Dry(multiplier=3.0)},
    {"typical_p": 0.7, "top_n_sigma": 1.0, "top_k": 0},
    {"temperature": 0.0, "typical_p": 0.7},
    {"top_k": 1},
    {"min_tokens": 9},
    {"mirostat": 1, "temperature": 0.0},
]


@pytest.fixture(autouse=True)
def silenced() -> Iterator[None]:
    """As callers of `Sampler` have to do."""
    with np.errstate(all="ignore"):
        yield


class Vocab(FakeVocab):
    size = SIZE
    end_tokens = frozenset({2})
    suppressed_tokens = frozenset({7})


def rows(seed: int) -> list[Row]:
    return [
        (3 * row).astype(np.float32)
        for row in np.random.default_rng(seed).standard_normal((24, SIZE))
    ]


def sequence(choices: dict[str, Any], seed: int = 11) -> NewSequence:
    return NewSequence(
        id=SequenceId(1),
        prompt=Prompt(PROMPT),
        max_tokens=None,
        sampling=Sampling(**{"seed": seed, "temperature": 1.5, "top_k": 20, **choices}),
    )


def say(one: NewSequence, some: list[Row]) -> list[int]:
    sampler = Sampler(one, Vocab())
    return [sampler.choose(row.copy()) for row in some]


@given(st.sampled_from(CHOICES), st.integers(0, 24), st.integers(0, 2**32 - 1))
def test_it_goes_on_as_the_first_would_have(choices: dict[str, Any], cut: int, seed: int) -> None:
    some = rows(seed)
    one = sequence(choices, seed)
    assert one.sampling.can_resume
    whole = say(one, some)
    rest = say(replace(one, said=tuple(whole[:cut])), some[cut:])
    assert whole[:cut] + rest == whole


@pytest.mark.parametrize(
    "choices", [{"mirostat": 2}, {"xtc_probability": 0.5}, {"adaptive_target": 0.0}]
)
def test_what_depends_on_lost_rows_cannot_be_resumed(choices: dict[str, Any]) -> None:
    assert not sequence(choices).sampling.can_resume
    assert sequence({"mirostat": 2, "xtc_probability": 0.5, "temperature": 0}).sampling.can_resume


def test_the_best_takes_no_draw() -> None:
    assert sequence({"temperature": 0.0}).sampling.num_draws(5) == 0
    assert sequence({}).sampling.num_draws(5) == 5


@given(st.integers(0, 20), st.integers(0, 20))
def test_what_is_forced_is_said_and_draws_all_the_same(cut: int, num_forced: int) -> None:
    some = rows(5)
    one = sequence({"top_log_probs": 2})
    whole = Sampler(one, Vocab())
    tokens = [whole.choose(row.copy()) for row in some]
    explained = whole.take_log_probs()
    again = Sampler(
        replace(one, said=tuple(tokens[:cut]), forced=tuple(tokens[cut : cut + num_forced])),
        Vocab(),
    )
    assert [again.choose(row.copy()) for row in some[cut:]] == tokens[cut:]
    assert again.take_log_probs() == explained[cut:]


def test_a_forced_token_need_not_be_likely() -> None:
    sampler = Sampler(replace(sequence({"top_log_probs": 0}), forced=(13, 14)), Vocab())
    some = rows(3)
    assert [sampler.choose(row.copy()) for row in some[:2]] == [13, 14]
    assert [each.token for each in sampler.take_log_probs()] == [13, 14]
