"""The state of an answer in a grammar: what may come next, token by token."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher

from arriero.agent.engine.grammar.constraint import (
    MAX_DIGITS,
    BrokenError,
    Constraint,
    ConstraintError,
    Mask,
)
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Dry, Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId
from tests.agent.saying import at_once, demo_grammars, demo_vocab, fits, say


@pytest.fixture(autouse=True)
def silenced() -> Iterator[None]:
    """As callers of `Sampler` have to do."""
    with np.errstate(all="ignore"):
        yield


def constraint_of(regex: str) -> Constraint:
    return demo_grammars().compile(LLMatcher.grammar_from_regex(regex))


def row() -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    return np.zeros(demo_vocab().size, np.float32)


@pytest.mark.parametrize("is_exclusion", [False, True])
def test_a_mask_leaves_no_chance_to_the_others(is_exclusion: bool) -> None:
    logits = np.arange(6, dtype=np.float32)
    Mask(np.array([0, 3]), is_exclusion).restrict(logits)
    allowed = {1, 2, 4, 5} if is_exclusion else {0, 3}
    assert [n for n in range(6) if np.isfinite(logits[n])] == sorted(allowed)
    assert all(logits[n] == n for n in allowed)
    assert Mask(np.array([0, 3]), is_exclusion).first == min(allowed)


def test_a_mask_that_excludes_the_first_ones_begins_after_them() -> None:
    assert Mask(np.array([0, 1, 2]), is_exclusion=True).first == 3


def test_courses_of_one_constraint_know_nothing_of_each_other() -> None:
    constraint = constraint_of("ab|cd")
    a, b, c, d = (
        demo_vocab().tokenize(each, add_special=False, parse_special=False) for each in "abcd"
    )
    one, other = constraint.begin(at_once), constraint.begin(at_once)
    one.accept(*a)
    other.accept(*c)
    for state, follows in ((one, b), (other, d)):
        logits = row()
        state.restrict(logits)
        assert list(np.flatnonzero(np.isfinite(logits))) == list(follows)
        assert state.failure is None


def test_at_its_end_only_the_end_may_follow() -> None:
    constraint = constraint_of("a")
    state = constraint.begin(at_once)
    state.accept(*demo_vocab().tokenize("a", add_special=False, parse_special=False))
    logits = row()
    state.restrict(logits)
    assert set(np.flatnonzero(np.isfinite(logits))) == demo_vocab().end_tokens


def test_what_follows_is_worked_out_on_another_thread() -> None:
    constraint = constraint_of("[a-z]{40}")
    with ThreadPoolExecutor(1) as threads:
        state = constraint.begin(threads.submit)
        for _ in range(3):
            logits = row()
            state.restrict(logits)
            state.accept(int(logits.argmax()))
    assert state.failure is None


def test_where_the_way_is_lost_the_end_follows_and_the_failure_is_reported() -> None:
    state = constraint_of("ab").begin(at_once)
    state.accept(*demo_vocab().tokenize("x", add_special=False, parse_special=False))
    logits = row()
    state.restrict(logits)
    assert set(np.flatnonzero(np.isfinite(logits))) == demo_vocab().end_tokens
    assert state.failure


def test_what_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(ConstraintError, match="no text matches it"):
        constraint_of(r"[^\s\S]")


def test_what_becomes_too_much_work_is_refused_before_it_runs() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(3000)}}
    with pytest.raises(ConstraintError, match="2000"):
        demo_grammars().compile(LLMatcher.grammar_from_json_schema(json.dumps(schema)))


def test_any_answer_by_chance_fits() -> None:
    constraint = constraint_of(r"[a-z]+(, [a-z]+){2}\.")
    for seed in range(5):
        said = say(constraint, seed, max_tokens=60)
        assert said.failure is None
        if said.is_whole:
            assert fits(constraint, said.text)


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
        prompt=Prompt((40, 50, 60)),
        max_tokens=None,
        sampling=Sampling(**{"seed": seed, **choices}),
        constraint=constraint,
    )
    sampler = Sampler(sequence, vocab, constraint.begin(at_once))
    rng = np.random.default_rng(seed)
    tokens: list[int] = []
    for _ in range(40):
        row = (scale * rng.standard_normal(vocab.size)).astype(np.float32)
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
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt((1,)), max_tokens=None, sampling=sampling
    )
    sampler = Sampler(sequence, vocab, constraint.begin(at_once))
    row = np.zeros(vocab.size, np.float32)
    row[500] = 5.0
    token = sampler.choose(row)
    assert vocab.piece(token) == b"a"
    (log_probs,) = sampler.take_log_probs()
    assert log_probs.top[0][0] == 500
    assert log_probs.log_prob < log_probs.top[0][1] < 0


class Failing:
    """A worker that ends at the fifth token."""

    is_broken = False

    def __init__(self) -> None:
        self.num_taken = 0
        self.ended: list[int] = []
        self.num_begun = 0

    def begin(self) -> int:
        self.num_begun += 1
        return self.num_begun

    def follow(self, id: int, base: int, tokens: Sequence[int], num_before: int = 0) -> bytes:
        self.num_taken += 1
        if self.num_taken >= 5:
            self.is_broken = True
            raise BrokenError("it has ended")
        return b"\xff"

    def end(self, id: int) -> None:
        self.ended.append(id)


def test_where_the_worker_ends_the_answer_ends_and_the_grammar_is_not_used_again() -> None:
    constraint = Constraint(Failing(), b"\xff", 8, [7])
    state, other = constraint.begin(at_once), constraint.begin(at_once)
    for _ in range(5):
        assert not constraint.is_broken
        state.restrict(np.zeros(8, np.float32))
        state.accept(0)
    logits = np.zeros(8, np.float32)
    state.restrict(logits)
    assert list(np.flatnonzero(np.isfinite(logits))) == [7]
    assert state.failure == "it has ended"
    assert constraint.is_broken
    other.accept(0)
    other.restrict(np.zeros(8, np.float32))
    assert other.failure is not None, "who was at it already hears of it too"


def test_a_worker_hears_which_sequences_have_ended() -> None:
    worker = Failing()
    constraint = Constraint(worker, b"\xff", 8, [7])
    rest = constraint.after([1])
    state = rest.begin(at_once)
    del state
    assert worker.ended == [2]
    del rest
    assert worker.ended == [2, 1]


def test_a_course_may_begin_where_another_would_be_after_some_tokens() -> None:
    constraint = constraint_of("ab(c|d)e+")
    tokens = [
        *chain.from_iterable(
            demo_vocab().tokenize(each, add_special=False, parse_special=False) for each in "abceee"
        )
    ]
    for cut in range(len(tokens)):
        whole, rest = constraint.begin(at_once), constraint.after(tokens[:cut]).begin(at_once)
        for token in tokens[:cut]:
            whole.accept(token)
        for token in tokens[cut:]:
            one, other = row(), row()
            whole.restrict(one)
            rest.restrict(other)
            assert np.array_equal(one, other)
            whole.accept(token)
            rest.accept(token)


def test_a_course_may_begin_at_its_end() -> None:
    constraint = constraint_of("a")
    [a] = demo_vocab().tokenize("a", add_special=False, parse_special=False)
    logits = row()
    constraint.after([a]).begin(at_once).restrict(logits)
    assert {*np.flatnonzero(np.isfinite(logits))} == demo_vocab().end_tokens


def test_tokens_that_a_grammar_does_not_allow() -> None:
    [a] = demo_vocab().tokenize("a", add_special=False, parse_special=False)
    for tokens in ([a, a], [a, *demo_vocab().end_tokens, a]):
        with pytest.raises(ConstraintError, match=r"does not allow token \d of the answer"):
            constraint_of("a").after(tokens)


def num_digits(constraint: Constraint, begin: str, most: int = 200) -> int:
    """How many digits a model writes after `begin` that would never end a number by itself."""
    vocab = demo_vocab()
    state = constraint.begin(at_once)
    for token in vocab.tokenize(begin, add_special=False, parse_special=False):
        state.restrict(row())
        state.accept(token)
    (three,) = vocab.tokenize("3", add_special=False, parse_special=False)
    for number in range(most):
        logits = row()
        state.restrict(logits)
        if not np.isfinite(logits[three]):
            assert state.failure is None
            return number
        state.accept(three)
    return most


@pytest.mark.parametrize(
    ("schema", "begin"),
    [
        ({"type": "number"}, ""),
        ({"type": "number"}, "0."),
        ({"type": "number"}, "1e-"),
        ({"type": "integer", "minimum": 0}, ""),
        ({"type": "array"}, "[1, -1"),
        ({"type": "object"}, '{"a": 0.'),
        ({"anyOf": [{"type": "number"}, {"type": "string"}]}, "-2"),
    ],
)
def test_a_number_has_an_end(schema: dict[str, Any], begin: str) -> None:
    constraint = demo_grammars().compile(LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    assert 17 < num_digits(constraint, begin) <= MAX_DIGITS


@pytest.mark.parametrize(
    ("schema", "begin"),
    [
        ({"type": "string"}, '"'),
        ({"type": "string", "pattern": "^[0-9]+$"}, '"'),
    ],
)
def test_other_digits_go_on(schema: dict[str, Any], begin: str) -> None:
    constraint = demo_grammars().compile(LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    assert num_digits(constraint, begin) == 200
    assert num_digits(constraint_of("[0-9]+"), "") == 200


def test_the_digits_of_an_answer_that_goes_on_are_counted_from_its_beginning() -> None:
    constraint = demo_grammars().compile(LLMatcher.grammar_from_json_schema('{"type": "number"}'))
    begun = demo_vocab().tokenize("0.33333", add_special=False, parse_special=False)
    assert num_digits(constraint.after(begun), "") < num_digits(constraint, "0.")
