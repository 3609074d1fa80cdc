"""How tokens are chosen: as asked, and as llama.cpp's own samplers choose them."""

import ctypes
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import annotated_types
import llama_cpp.llama_cpp as llama_cpp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from arriero.agent.engine.grammar.constraint import GrammarState, Mask
from arriero.agent.engine.llama.vocab import LlamaVocab
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.dry import BreakerFinder, DryPenalty
from arriero.agent.engine.sampling.ordered import left_in_order
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Dry, Sampling
from arriero.agent.engine.sampling.selection import Row
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.generation.sampling_resolver import SamplingResolver
from arriero.shared.inference import GenerateRequest
from arriero.shared.sampling import SAMPLER_ORDER, SamplingChoices
from tests.agent.engine.fake_engine import FakeVocab
from tests.sampling_values import NUMBERS

PROMPT = (40, 50, 60, 70)


@pytest.fixture(autouse=True)
def silenced() -> Iterator[None]:
    """As callers of `Sampler` have to do."""
    with np.errstate(all="ignore"):
        yield


def new(prompt: tuple[int, ...] = PROMPT, **choices: Any) -> NewSequence:
    return NewSequence(
        id=SequenceId(1),
        prompt=Prompt(prompt),
        max_tokens=None,
        sampling=Sampling(**{"seed": 1, "temperature": 0, **choices}),
    )


def row_of(size: int, *, scale: float = 1.0, seed: int = 0) -> Row:
    return (scale * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


def choose(row: Row, prompt: tuple[int, ...] = PROMPT, **choices: Any) -> int:
    """The first token of a new sequence."""
    return Sampler(new(prompt, **choices), BareVocab(row.size)).choose(row.copy())


class BareVocab(FakeVocab):
    """A sampler looks at no more of a vocabulary than this."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.end_tokens = frozenset({2, 5})
        self.suppressed_tokens = frozenset({7})


class NoSuppression(BareVocab):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.suppressed_tokens = frozenset()


ROW = row_of(200)
BEST = int(ROW.argmax())


def test_the_best_is_taken_where_nothing_else_can_be() -> None:
    assert choose(ROW) == BEST
    for narrow in (
        {"top_k": 1},
        {"temperature": 1e-3},
        {"top_k": 0, "top_p": 1e-6},
        {"top_k": 0, "top_p": 0.0},
        {"top_k": 0, "top_p": 1.0, "min_p": 1.0},
    ):
        assert choose(ROW, **{"temperature": 1.0, **narrow}) == BEST


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_bias_forbids_and_demands(temperature: float) -> None:
    choices = {"temperature": temperature}
    assert choose(ROW, logit_bias=((BEST, -100.0),), **choices) != BEST
    assert choose(ROW, logit_bias=((123, 100.0),), **choices) == 123


def test_a_bias_outside_the_vocabulary_does_nothing() -> None:
    assert choose(ROW, logit_bias=((10**9, 100.0), (-1, 100.0))) == BEST


def test_a_logit_may_be_too_large_to_be_squared() -> None:
    row = ROW.copy()
    row[9] = np.finfo(np.float32).max
    sampler = Sampler(new(temperature=1.0, top_n_sigma=5e-324), NoSuppression(row.size))
    assert sampler.choose(row) == 9


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_nothing_but_what_is_allowed_is_chosen(temperature: float) -> None:
    allowed = (9, 33, 10**9)
    sampler = Sampler(new(temperature=temperature, allowed_tokens=allowed), BareVocab(ROW.size))
    assert {sampler.choose(ROW.copy()) for _ in range(20)} <= {9, 33}
    nothing = np.full(ROW.size, -np.inf, np.float32)
    assert sampler.choose(nothing) == 9


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_bad_word_is_never_completed(temperature: float) -> None:
    towards = {"logit_bias": ((3, 100.0), (9, 50.0)), "temperature": temperature}
    sampler = Sampler(new(bad_words=((3, 3), (9,)), **towards), BareVocab(ROW.size))
    said = [sampler.choose(ROW.copy()) for _ in range(3)]
    assert said[0] == said[2] == 3
    assert said[1] not in (3, 9)
    assert not Sampling(seed=1, temperature=0, bad_words=((3, 3),)).is_greedy


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_ignored_end_tokens_are_never_chosen(temperature: float) -> None:
    wanted = {"logit_bias": ((5, 100.0),), "temperature": temperature}
    assert choose(ROW, **wanted) == 5
    assert choose(ROW, ignore_eos=True, **wanted) not in (2, 5)


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("end", [2, 5, 9])
def test_the_first_tokens_do_not_end_the_answer(temperature: float, end: int) -> None:
    wanted = {"logit_bias": ((end, 100.0),), "temperature": temperature, "stop_tokens": (9, 10**9)}
    sampler = Sampler(new(min_tokens=3, **wanted), BareVocab(ROW.size))
    chosen = [sampler.choose(ROW.copy()) for _ in range(4)]
    assert not {2, 5, 9} & {*chosen[:3]}
    assert chosen[3] == end


def test_a_model_that_only_wants_to_end_says_something_first() -> None:
    row = np.full(12, -np.inf, np.float32)
    row[5] = 1
    sampler = Sampler(new(min_tokens=1), BareVocab(row.size))
    assert [sampler.choose(row.copy()) for _ in range(2)] == [0, 5]


def test_a_finished_grammar_ends_an_answer_of_too_few_tokens() -> None:
    for allowed, chosen in (([5], 5), ([5, 8], 8), ([2, 5], 2)):
        sampler = Sampler(new(min_tokens=9), BareVocab(ROW.size), state_of(allowed))
        assert sampler.choose(ROW.copy()) == chosen


def test_what_the_model_suppresses_is_never_chosen() -> None:
    assert choose(ROW, logit_bias=((7, 100.0),)) == BEST


def test_penalties_look_at_the_prompt() -> None:
    prompt = (*PROMPT, *[123] * 60)
    wanted = {"logit_bias": ((123, 100.0),)}
    assert choose(ROW, prompt, **wanted) == 123
    assert choose(ROW, prompt, frequency_penalty=2.0, **wanted) != 123
    # Beyond the last `repeat_last_n` tokens they are forgotten.
    assert choose(ROW, prompt, frequency_penalty=2.0, repeat_last_n=9, **wanted) == 123


def test_penalties_look_at_what_was_chosen() -> None:
    choices = {"logit_bias": ((123, 100.0),), "presence_penalty": 2.0, "repeat_penalty": 10.0}
    sampler = Sampler(new((), repeat_last_n=2, **choices), BareVocab(ROW.size))
    row = np.zeros_like(ROW)
    row[[123, 50, 60]] = (-90, 9, 8)
    tokens = [sampler.choose(row.copy()) for _ in range(5)]
    assert tokens == [123, 50, 60, 123, 50]


def test_the_same_seed_gives_the_same_tokens() -> None:
    choices = {"temperature": 5.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    seeds = [0, 1, 2**32 - 1, *range(2, 20)]
    first = [choose(ROW, seed=seed, **choices) for seed in seeds]
    assert first == [choose(ROW, seed=seed, **choices) for seed in seeds]
    assert len(set(first)) > 10


# ---- against llama.cpp's own chain


def entries_of(row: Row) -> Any:
    """llama.cpp's candidates."""
    entries = np.zeros(row.size, [("id", np.int32), ("logit", np.float32), ("p", np.float32)])
    entries["id"], entries["logit"] = np.arange(row.size), row
    return entries


def array_of(entries: Any) -> Any:
    kind = ctypes.POINTER(llama_cpp.llama_token_data)
    return llama_cpp.llama_token_data_array(
        data=ctypes.cast(entries.ctypes.data, kind), size=entries.size, selected=-1, sorted=False
    )


class Chain:
    """llama.cpp's samplers in the order of its `common_sampler`."""

    def __init__(self, sequence: NewSequence, size: int) -> None:
        sampling = sequence.sampling
        params = llama_cpp.llama_sampler_chain_default_params()
        self._chain = llama_cpp.llama_sampler_chain_init(params)
        never = (7, 2, 5) if sampling.ignore_eos else (7,)
        biases = [*sampling.logit_bias, *((token, -np.inf) for token in never)]
        entries = (llama_cpp.llama_logit_bias * len(biases))(*biases)
        self._add(llama_cpp.llama_sampler_init_logit_bias(size, len(biases), entries))
        if sampling.mirostat:
            self._add(llama_cpp.llama_sampler_init_temp(sampling.temperature))
            self._add(_mirostat(sampling, size))
            return
        for name in sampling.samplers or SAMPLER_ORDER:
            self._add_named(name, sequence, size)
        if sampling.adaptive_target >= 0:
            target, decay = sampling.adaptive_target, sampling.adaptive_decay
            self._add(llama_cpp.llama_sampler_init_adaptive_p(target, decay, sampling.seed))
            return
        self._add(llama_cpp.llama_sampler_init_dist(sampling.seed))

    def choose(self, row: Row) -> tuple[int, dict[int, float]]:
        """The next token, and the probabilities it was drawn by."""
        entries = entries_of(row)
        array = array_of(entries)
        llama_cpp.llama_sampler_apply(self._chain, ctypes.byref(array))
        # XTC moves the array's beginning.
        first = ctypes.addressof(array.data.contents) - entries.ctypes.data
        left = entries[first // entries.itemsize :][: array.size]
        token = int(left["id"][array.selected])
        llama_cpp.llama_sampler_accept(self._chain, token)
        return token, dict(zip(left["id"].tolist(), left["p"].tolist(), strict=True))

    def free(self) -> None:
        llama_cpp.llama_sampler_free(self._chain)

    def _add_named(self, name: str, sequence: NewSequence, size: int) -> None:
        sampling, tokens = sequence.sampling, sequence.prompt.tokens
        match name:
            case "penalties":
                penalties = llama_cpp.llama_sampler_init_penalties(
                    size,
                    sampling.repeat_last_n,
                    sampling.repeat_penalty,
                    sampling.frequency_penalty,
                    sampling.presence_penalty,
                )
                self._add(penalties)
                for token in tokens[-sampling.repeat_last_n :]:
                    llama_cpp.llama_sampler_accept(penalties, token)
            case "dry":
                if sampling.dry is not None:
                    dry = _dry(sampling.dry)
                    self._add(dry)
                    for token in tokens:
                        llama_cpp.llama_sampler_accept(dry, token)
            case "top_n_sigma":
                self._add(llama_cpp.llama_sampler_init_top_n_sigma(sampling.top_n_sigma))
            case "top_k":
                self._add(llama_cpp.llama_sampler_init_top_k(sampling.top_k))
            case "typ_p":
                self._add(llama_cpp.llama_sampler_init_typical(sampling.typical_p, 1))
            case "top_p":
                self._add(llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1))
            case "min_p":
                self._add(llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1))
            case "xtc":
                chance, threshold = sampling.xtc_probability, sampling.xtc_threshold
                xtc = llama_cpp.llama_sampler_init_xtc(chance, threshold, 1, sampling.seed)
                self._add(xtc)
            case "temperature":
                spread, power = sampling.dynatemp_range, sampling.dynatemp_exponent
                temperature = sampling.temperature
                self._add(llama_cpp.llama_sampler_init_temp_ext(temperature, spread, power))

    def _add(self, sampler: Any) -> None:
        llama_cpp.llama_sampler_chain_add(self._chain, sampler)


def _mirostat(sampling: Sampling, size: int) -> Any:
    seed, tau, eta = sampling.seed, sampling.mirostat_tau, sampling.mirostat_eta
    if sampling.mirostat == 1:
        return llama_cpp.llama_sampler_init_mirostat(size, seed, tau, eta, 100)
    return llama_cpp.llama_sampler_init_mirostat_v2(seed, tau, eta)


def _dry(dry: Dry) -> Any:
    return llama_cpp.llama_sampler_init_dry(
        None, dry.multiplier, dry.base, dry.allowed_length, dry.penalty_last_n, None, 0
    )


CHOICES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "penalties": {"repeat_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    "rewards": {"repeat_penalty": 0.7, "presence_penalty": -1.0, "repeat_last_n": 7},
    "biases": {"logit_bias": ((9, 8.0), (20, -3.0)), "ignore_eos": True},
    "hot": {"temperature": 3.0, "top_p": 0.99, "min_p": 0.001},
    "cold": {"temperature": 0.01},
    "one": {"top_k": 1},
    "many": {"top_k": 1000},
    "no top-k": {"top_k": 0},
    "top-p only": {"top_k": 0, "min_p": 0.0, "top_p": 0.9},
    "min-p only": {"top_k": 0, "top_p": 1.0},
    "no filter": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "typical": {"top_k": 20, "typical_p": 0.5},
    "typical alone": {"top_k": 20, "typical_p": 0.7, "top_p": 1.0, "min_p": 0.0},
    "typical and min-p": {"top_k": 20, "typical_p": 0.9, "top_p": 1.0, "min_p": 0.02},
    "sigma": {"top_n_sigma": 1.0},
    "sigma alone": {"top_n_sigma": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.1},
    "xtc always": {"xtc_probability": 1.0, "xtc_threshold": 0.05, "temperature": 2.0},
    "xtc alone": {"xtc_probability": 0.6, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "xtc off": {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    "xtc, after what keeps the order": {
        "samplers": ("top_n_sigma", "xtc", "temperature"),
        "top_n_sigma": 2.0,
        "xtc_probability": 0.5,
    },
    "dry": {"dry": Dry(multiplier=4.0, allowed_length=1)},
    "dry of all": {"dry": Dry(multiplier=0.5, base=1.0, allowed_length=0, penalty_last_n=20)},
    "dry and penalties": {"dry": Dry(multiplier=2.0, base=3.0), "repeat_penalty": 1.3},
    "dynamic temperature": {"dynatemp_range": 0.7},
    "dynamic temperature from 0": {"dynatemp_range": 2.0, "dynatemp_exponent": 2.5, "top_k": 0},
    "dynamic temperature alone": {"dynatemp_range": 0.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "dynamic temperature of one": {"dynatemp_range": 0.5, "top_k": 1},
    "adaptive": {"adaptive_target": 0.3},
    "adaptive of all": {"adaptive_target": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "adaptive, fast": {"adaptive_target": 1.0, "adaptive_decay": 0.0, "repeat_penalty": 1.3},
    "adaptive of one": {"adaptive_target": 0.5, "top_k": 1},
    "both": {"adaptive_target": 0.2, "dynatemp_range": 0.7, "xtc_probability": 0.5},
    "mirostat": {"mirostat": 1},
    "mirostat, surprising": {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.5},
    "mirostat 2": {"mirostat": 2},
    "mirostat 2, hot": {"mirostat": 2, "mirostat_tau": 2.0, "temperature": 3.0},
}


@pytest.mark.parametrize("size", [33, 5000, 40_001])
@pytest.mark.parametrize("name", CHOICES)
def test_the_tokens_are_those_of_llama_cpp(name: str, size: int) -> None:
    prompt = (*range(10, 30), *range(10, 20), *range(10, 13))
    sequence = new(prompt, **{"seed": 4711, "temperature": 0.8, **CHOICES[name]})
    chain, sampler = Chain(sequence, size), Sampler(sequence, BareVocab(size))
    try:
        for seed in range(40 if size < 10_000 else 15):
            row = row_of(size, scale=5, seed=seed)
            token, _ = chain.choose(row)
            assert sampler.choose(row) == token
    finally:
        chain.free()


NAMES = {
    "presence_penalty": "penalties",
    "dry": "dry",
    "top_n_sigma": "top_n_sigma",
    "typical_p": "typ_p",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc",
}


def both_ways(size: int, seed: int, choices: dict[str, Any]) -> tuple[Sampler, Sampler]:
    """A sampler that applies one filter after another in llama.cpp's order, and the usual one."""
    names = {"temperature", *(NAMES[each] for each in choices if each in NAMES)}
    samplers = tuple(each for each in SAMPLER_ORDER if each in names)
    choices = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **choices}
    sequences = (new(seed=seed, samplers=samplers, **choices), new(seed=seed, **choices))
    plain, own = (Sampler(each, BareVocab(size)) for each in sequences)
    return plain, own


STEEP: list[dict[str, Any]] = [
    {"typical_p": 0.6, "min_p": 1e-6},
    {"typical_p": 0.9, "top_p": 0.8, "min_p": 0.01},
    {"top_p": 0.99, "temperature": 2.0},
    {"top_n_sigma": 2.0, "xtc_probability": 0.5},
]


@pytest.mark.parametrize("choices", STEEP)
def test_steep_rows_give_the_tokens_that_they_give_in_order(choices: dict[str, Any]) -> None:
    size = 20_000
    plain, own = both_ways(size, 6, choices)
    rows = [row_of(size, scale=5, seed=seed) for seed in range(30)]
    wanted = [plain.choose(row.copy()) for row in rows]
    assert [own.choose(row.copy()) for row in rows] == wanted


LONG: dict[str, dict[str, Any]] = {
    "no filter": {},
    "hot": {"temperature": 3.0},
    "min-p": {"min_p": 0.001},
    "sigma": {"top_n_sigma": 4.5},
    "biases": {"logit_bias": ((9, 3.0), (20, -3.0)), "ignore_eos": True},
    "log-probabilities": {"top_log_probs": 2},
    # What changes a row, changes what is drawn of it, too.
    "biases, explained": {"logit_bias": ((9, 12.0),), "top_log_probs": 2},
    "allowed, explained": {"allowed_tokens": tuple(range(0, 20_000, 3)), "top_log_probs": 2},
    "bad words, explained": {"bad_words": tuple((n,) for n in range(6000)), "top_log_probs": 2},
    "early, explained": {"stop_tokens": tuple(range(6000)), "min_tokens": 99, "top_log_probs": 2},
    "penalties, explained": {"presence_penalty": -12.0, "top_log_probs": 2},
    "dry, explained": {"dry": Dry(multiplier=-12.0, allowed_length=0), "top_log_probs": 2},
}


@pytest.mark.parametrize("name", LONG)
def test_long_rows_give_the_tokens_that_they_give_in_order(name: str) -> None:
    """Nothing is put in order, and a seed still gives the same tokens."""
    size = 20_000
    plain, own = both_ways(size, 5, LONG[name])
    rows = [row_of(size, seed=seed) for seed in range(30)]
    wanted = [plain.choose(row.copy()) for row in rows]
    found = [own.choose(row.copy()) for row in rows]
    # A sum is rounded: rarely, a draw at the very edge of a token is its neighbour's.
    assert sum(one != other for one, other in zip(wanted, found, strict=True)) <= 1
    for one, other in zip(plain.take_log_probs(), own.take_log_probs(), strict=True):
        assert other.log_prob == pytest.approx(one.log_prob, abs=1e-4) or one.token != other.token
        assert [token for token, _ in other.top] == [token for token, _ in one.top]


MANY: list[dict[str, Any]] = [
    {"top_p": 0.95},
    {"top_p": 0.6, "temperature": 3.0},
    {"top_k": 9000, "top_p": 0.9},
    {"typical_p": 0.9},
    {"typical_p": 0.9, "min_p": 0.001},
    {"mirostat": 1},
    {"mirostat": 2, "mirostat_tau": 12.0},
    {"xtc_probability": 1.0, "xtc_threshold": 0.0001},
]


@pytest.mark.parametrize("choices", MANY)
def test_a_seed_gives_the_same_tokens_of_many(choices: dict[str, Any]) -> None:
    size = 20_000
    plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    rows = [row_of(size, seed=seed) for seed in range(12)]
    runs = []
    for seed in (3, 3, 4):
        sampler = Sampler(new(seed=seed, **{**plain, **choices}), BareVocab(size))
        runs.append([sampler.choose(row.copy()) for row in rows])
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) > 6


@pytest.mark.parametrize("texts", [("\n", ":"), ("the slot", "<|im_end|>"), ("at", "balancer is")])
def test_dry_breaks_where_llama_cpp_does(vocab: LlamaVocab, texts: tuple[str, ...]) -> None:
    said = "the slot is free: the slot is at the balancer. the slot is free: the balancer is at "
    tokens = vocab.tokenize(said * 2 + "<|im_end|>the slot", add_special=False, parse_special=True)
    breakers = BreakerFinder(vocab).find(texts)
    ours = DryPenalty(Dry(multiplier=1.0, allowed_length=1, breakers=breakers), ())
    theirs = llama_cpp.llama_sampler_init_dry(
        vocab.handle,
        *(1.0, 1.75, 1, 64),
        (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts)),
        len(texts),
    )
    for token in tokens:
        llama_cpp.llama_sampler_accept(theirs, token)
        ours.accept(token)
        entries = entries_of(np.zeros(vocab.size, np.float32))
        llama_cpp.llama_sampler_apply(theirs, ctypes.byref(array_of(entries)))
        row = np.zeros(vocab.size, np.float32)
        ours.apply(row)
        np.testing.assert_allclose(row, entries["logit"], rtol=1e-5)
    llama_cpp.llama_sampler_free(theirs)


WITHOUT_HISTORY = ("defaults", "biases", "hot", "cold", "one", "many", "no top-k", "no filter")


@pytest.mark.parametrize("name", [*WITHOUT_HISTORY, "typical", "sigma", "xtc always"])
def test_tokens_are_drawn_as_often_as_llama_cpp_would(name: str) -> None:
    sequence = new(**{"temperature": 0.8, **CHOICES[name]})
    chain, sampler = Chain(sequence, ROW.size), Sampler(sequence, BareVocab(ROW.size))
    _, wanted = chain.choose(ROW)
    chain.free()
    num_draws = 3000
    counts = Counter(sampler.choose(ROW.copy()) for _ in range(num_draws))
    assert counts.keys() <= wanted.keys()
    for token, probability in wanted.items():
        spread = (probability * (1 - probability) / num_draws) ** 0.5
        assert abs(counts[token] / num_draws - probability) <= 5 * spread + 1e-5


FILTERS = ("typical", "typical alone", "xtc always", "sigma", "mirostat", "mirostat 2")


@pytest.mark.parametrize("name", FILTERS)
def test_without_temperature_the_best_of_what_is_left_is_taken(name: str) -> None:
    sequence = new(**{"seed": 3, **CHOICES[name], "temperature": 0})
    chain, sampler = Chain(sequence, 5000), Sampler(sequence, BareVocab(5000))
    try:
        for seed in range(20):
            row = row_of(5000, scale=5, seed=seed)
            token, _ = chain.choose(row)
            assert sampler.choose(row) == token
    finally:
        chain.free()


def test_xtc_draws_where_there_is_a_choice() -> None:
    """A row that leaves one candidate draws nothing from XTC's own generator."""
    sequence = new(**{"temperature": 0.8, **CHOICES["xtc"]})
    chain, sampler = Chain(sequence, 500), Sampler(sequence, BareVocab(500))
    try:
        for seed in range(40):
            row = row_of(500, scale=2, seed=seed)
            row[9] += 50 * (seed % 2)
            token, _ = chain.choose(row)
            assert sampler.choose(row) == token
    finally:
        chain.free()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", CHOICES)
def test_broken_logits_break_nothing(name: str, value: float) -> None:
    sampler = Sampler(new(**{"temperature": 0.8, **CHOICES[name]}), BareVocab(1000))
    row = np.zeros(1000, np.float32)
    for broken in (slice(3, 4), slice(None)):
        row[broken] = value
        assert 0 <= sampler.choose(row.copy()) < 1000


def test_what_is_ruled_out_is_not_taken_where_the_model_rules_out_all() -> None:
    row = np.full(1000, np.nan, np.float32)
    assert choose(row, logit_bias=((0, -np.inf),)) == 1
    sampler = Sampler(new(), BareVocab(1000), state_of([60, 70]))
    assert sampler.choose(row.copy()) == 60


def test_logits_too_large_to_be_squared_have_a_deviation() -> None:
    row = np.full(1000, -LARGEST, np.float32)
    row[:300] = LARGEST
    assert choose(row, temperature=1.0, top_n_sigma=1.0) < 300


SAMPLERS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0, 0.5, 3.0]),
        "top_k": st.sampled_from([0, 1, 40, 10_000]),
        "top_p": st.sampled_from([0.001, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 1.0]),
        "typical_p": st.sampled_from([0.001, 0.5, 0.999]),
        "top_n_sigma": st.sampled_from([0.001, 1.0, 50.0]),
        "xtc_probability": st.just(1.0),
        "xtc_threshold": st.sampled_from([0.0, 0.1, 0.5]),
        "repeat_penalty": st.just(1.5),
        "dry": st.just(Dry(multiplier=5.0, allowed_length=0)),
        "mirostat": st.sampled_from([1, 2]),
        "mirostat_tau": st.sampled_from([0.0, 5.0, 100.0]),
    },
)


@given(
    samplers=SAMPLERS,
    size=st.sampled_from([1, 2, 50, 3000]),
    num_allowed=st.integers(1, 20),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    seed=st.integers(0, 99),
)
def test_what_is_forbidden_is_never_chosen_by_any_samplers(
    samplers: dict[str, Any], size: int, num_allowed: int, scale: float, seed: int
) -> None:
    sampler = Sampler(new((0, 0, 0), **samplers, seed=seed), NoSuppression(size))
    rng = np.random.default_rng(seed)
    for _ in range(3):
        row = (scale * rng.standard_normal(size)).astype(np.float32)
        allowed = rng.choice(size, min(num_allowed, size), replace=False)
        masked = np.full(size, -np.inf, np.float32)
        masked[allowed] = row[allowed]
        assert sampler.choose(masked) in allowed


@pytest.mark.parametrize("mirostat", [0, 1, 2])
@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-38, 1e-30])
def test_a_tiny_temperature_takes_the_best(temperature: float, mirostat: int) -> None:
    row = np.array([0.0, -1e30, 20.0, 19.99, *[-50.0] * 100], np.float32)
    sampler = Sampler(new(temperature=temperature, mirostat=mirostat), BareVocab(row.size))
    assert {sampler.choose(row.copy()) for _ in range(20)} == {2}


# ---- log-probabilities


def test_log_probabilities_are_those_before_anything_was_done_to_the_row() -> None:
    size = 1000
    row = row_of(size, scale=5)
    wide = row.astype(np.float64)
    wanted = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    choices = {"temperature": 2.0, "repeat_penalty": 3.0, "logit_bias": ((123, 100.0),)}
    plain = Sampler(new(**choices), BareVocab(size))
    asking = Sampler(new(**choices, top_log_probs=3), BareVocab(size))
    tokens = [asking.choose(row.copy()) for _ in range(2)]
    assert tokens == [plain.choose(row.copy()) for _ in range(2)]
    found = asking.take_log_probs()
    assert [each.token for each in found] == tokens
    for each in found:
        assert each.log_prob == pytest.approx(wanted[each.token], abs=1e-5)
        assert [token for token, _ in each.top] == np.argsort(-wide)[:3].tolist()
    assert asking.take_log_probs() == plain.take_log_probs() == ()


def test_a_forced_token_has_the_log_probability_that_it_had() -> None:
    """What filters rule out in the row is of no account."""
    row = row_of(5000)
    choices = {"temperature": 1.0, "top_k": 0, "top_p": 0.5, "top_log_probs": 0}
    unlikely = int(row.argmin())
    sampler = Sampler(replace(new(**choices), forced=(unlikely,)), BareVocab(row.size))
    assert sampler.choose(row.copy()) == unlikely
    (found,) = sampler.take_log_probs()
    wide = row.astype(np.float64)
    assert found.log_prob == pytest.approx(wide[unlikely] - np.log(np.exp(wide).sum()), abs=1e-5)


# ---- whatever is accepted gives a token


def accepted(name: str) -> st.SearchStrategy[Any]:
    """What `shared.sampling` accepts for a number, its bounds and the smallest ones above all."""
    kind, bounds = number_and_bounds(get_type_hints(SamplingChoices, include_extras=True)[name])
    low, high = bounds["low"], bounds["high"]
    if kind is int:
        return st.sampled_from([low, low + 1, high - 1, high]) | st.integers(low, high)
    floor = math.nextafter(low, math.inf) if bounds["is_open"] else low
    edges = [floor, 5e-324, 1e-38, 1e-8, high, math.nextafter(high, 0)]
    return st.sampled_from(edges).filter(lambda value: value >= floor) | st.floats(floor, high)


def number_and_bounds(hint: Any) -> tuple[type, dict[str, Any]]:
    optional, *_ = get_args(hint)
    number = next((each for each in get_args(optional) if each is not type(None)), hint)
    kind, field, *_ = get_args(number)
    found: dict[str, Any] = {"is_open": False}
    for each in field.metadata:
        match each:
            case annotated_types.Ge(low):
                found["low"] = low
            case annotated_types.Gt(low):
                found |= {"low": low, "is_open": True}
            case annotated_types.Le(high):
                found["high"] = high
            case annotated_types.Lt(high):
                found["high"] = high - 1
    return kind, found


REQUESTS = TypeAdapter(GenerateRequest)


def state_of(allowed: list[int]) -> GrammarState:
    """After every token the same may come next."""
    mask = Mask(np.array(sorted(set(allowed)), np.intp), is_exclusion=False)

    def submit(work: Callable[[], Mask], /) -> Future[Mask]:
        done: Future[Mask] = Future()
        done.set_result(work())
        return done

    return GrammarState(lambda token: mask, mask, mask, submit)


LARGEST = float(np.finfo(np.float32).max)
LOGITS = st.sampled_from([np.nan, np.inf, -np.inf, LARGEST, -LARGEST, 0.0, 1e-45, 700.0]) | (
    st.floats(-50, 50, width=32)
)


@st.composite
def rows(draw: st.DrawFn, size: int) -> Row:
    """All equal, or ordinary, but for a few places."""
    base = draw(LOGITS)
    row = np.full(size, base, np.float32)
    if np.isfinite(base) and draw(st.booleans()):
        row = row_of(size, scale=8, seed=draw(st.integers(0, 9)))
    for place, value in draw(st.dictionaries(st.integers(0, size - 1), LOGITS, max_size=6)).items():
        row[place] = value
    return row


@given(
    data=st.data(),
    choices=st.fixed_dictionaries({}, optional={name: accepted(name) for name in NUMBERS}),
)
def test_whatever_is_accepted_gives_a_token(data: st.DataObject, choices: dict[str, Any]) -> None:
    asked = {"prompt": "x", "logprobs": True, "top_logprobs": 3, **choices}
    request = REQUESTS.validate_json(json.dumps(asked))
    sampling = SamplingResolver(FakeVocab()).sampling(request, seed=1)
    size = FakeVocab.size
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt((1, 2, 1, 2, 1)), max_tokens=None, sampling=sampling
    )
    allowed = data.draw(st.none() | st.lists(st.integers(0, size - 1), min_size=1, max_size=3))
    state = None if allowed is None else state_of(allowed)
    sampler = Sampler(sequence, NoSuppression(size), state)
    for _ in range(3):
        token = sampler.choose(data.draw(rows(size)))
        assert token in (allowed or range(size))
    told = sampler.take_log_probs()
    assert all(np.isfinite(each.log_prob) and len(each.top) == 3 for each in told)


# ---- samplers in an order of the request's own

ORDERS: dict[str, dict[str, Any]] = {
    "temperature first": {
        "samplers": ("temperature", "top_k", "top_p", "min_p"),
        "temperature": 2.0,
        "min_p": 0.2,
    },
    "penalties last": {
        "samplers": ("top_k", "top_p", "temperature", "penalties"),
        "repeat_penalty": 1.5,
        "min_p": 0.0,
    },
    "dry after min-p": {
        "samplers": ("min_p", "dry", "top_p", "temperature"),
        "dry": Dry(multiplier=4.0, allowed_length=1),
        "top_k": 0,
    },
    "min-p, top-p, typical": {
        "samplers": ("min_p", "top_p", "typ_p", "temperature"),
        "min_p": 0.01,
        "top_p": 0.8,
        "typical_p": 0.7,
        "top_k": 0,
    },
    "sigma last": {
        "samplers": ("temperature", "top_k", "top_n_sigma"),
        "top_n_sigma": 1.0,
        "top_p": 1.0,
        "min_p": 0.0,
    },
    "xtc first": {
        "samplers": ("xtc", "top_k", "temperature"),
        "xtc_probability": 1.0,
        "xtc_threshold": 0.02,
        "top_p": 1.0,
        "min_p": 0.0,
    },
}


@pytest.mark.parametrize("size", [33, 5000])
@pytest.mark.parametrize("name", ORDERS)
def test_in_another_order_tokens_are_as_likely_as_with_llama_cpp(name: str, size: int) -> None:
    prompt = (*range(10, 30), *range(10, 20), *range(10, 13))
    sequence = new(prompt, **{"temperature": 0.8, **ORDERS[name]})
    row = row_of(size, scale=3)
    chain, sampler = Chain(sequence, size), Sampler(sequence, BareVocab(size))
    _, wanted = chain.choose(row)
    chain.free()
    wanted = {token: share for token, share in wanted.items() if share > 0}
    ruled_out = row.copy()
    ruled_out[7] = -np.inf
    ids, logits = left_in_order(
        ruled_out, sequence.sampling, sampler._in_order, sampler._draw_for_xtc
    )
    shares = np.exp(logits - logits.max())
    found = dict(zip(ids.tolist(), (shares / shares.sum()).tolist(), strict=True))
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert sampler.choose(row.copy()) in wanted


def test_in_another_order_the_best_of_what_is_left_is_taken_without_temperature() -> None:
    ordered = {"samplers": ("temperature", "penalties"), "repeat_penalty": 10.0}
    assert choose(ROW, (BEST,), **ordered) == BEST
    assert choose(ROW, (BEST,), repeat_penalty=10.0) != BEST
    nothing = np.full(ROW.size, -np.inf, np.float32)
    assert choose(nothing, **ordered) == choose(nothing)
    assert choose(np.where(ROW[3] == ROW, np.nan, ROW), **ordered) == BEST


RESOLVED: list[tuple[tuple[str, ...], dict[str, Any], tuple[str, ...]]] = [
    (("top_k", "top_p", "temperature"), {}, ()),
    (("temperature", "top_p"), {}, ("temperature", "top_p")),
    (("temperature", "top_p"), {"temperature": 1.0}, ()),
    (("top_p", "top_k"), {"top_k": 0}, ()),
    (("dry", "penalties"), {"repeat_penalty": 1.1}, ()),
    (
        ("dry", "penalties"),
        {"repeat_penalty": 1.1, "dry_multiplier": 1.0},
        ("dry", "penalties"),
    ),
]


@pytest.mark.parametrize(("names", "choices", "order"), RESOLVED)
def test_an_order_counts_if_it_can_change_the_result(
    names: tuple[Any, ...], choices: dict[str, Any], order: tuple[str, ...]
) -> None:
    request = GenerateRequest(prompt="x", samplers=names, **choices)
    assert SamplingResolver(FakeVocab()).sampling(request, 1).samplers == order


def test_samplers_that_are_not_named_are_off() -> None:
    request = GenerateRequest(
        prompt="x",
        samplers=("top_k",),
        temperature=0.1,
        repeat_penalty=1.5,
        dry_multiplier=1.0,
        top_p=0.5,
    )
    found = SamplingResolver(FakeVocab()).sampling(request, 1)
    off = Sampling(seed=1, temperature=1.0, top_p=1.0, min_p=0.0)
    assert found == off
