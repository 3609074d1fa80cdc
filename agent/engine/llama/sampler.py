"""Choosing a sequence's next token from its row of logits.

Greedy sequences take the highest logit of the row where it lies, without copying it. All others
have a chain of llama.cpp's samplers in the order of llama.cpp's own `common_sampler`: biases,
penalties, top-k, top-p, min-p, temperature, and the draw by seed. As in llama-server the penalties'
history begins with the prompt, so a token that the prompt repeats is penalised in the answer.
"""

from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from ..sampling import Sampling
from ..sequence import NewSequence
from .vocab import LlamaVocab

_RANDOM_SEED = 0xFFFFFFFF
"""llama.cpp takes this seed for the wish to draw one, which would not be reproducible."""

Row = NDArray[np.float32]


class Greedy:
    """The highest logit after biases."""

    def __init__(self, biases: dict[int, float]) -> None:
        self._has_biases = bool(biases)
        self._tokens = np.array(list(biases.keys()), np.int64)
        self._biases = np.array(list(biases.values()), np.float32)

    def choose(self, context: Any, index: int, row: Row) -> int:
        """The next token. `row`, the logits of batch position `index`, is overwritten."""
        if self._has_biases:
            row[self._tokens] += self._biases
        return int(row.argmax())

    def free(self) -> None:
        """Nothing to give back."""


class Chain:
    """llama.cpp's samplers, with the memory of what they chose."""

    def __init__(self, sequence: NewSequence, biases: dict[int, float], vocab_size: int) -> None:
        sampling = sequence.sampling
        self._chain = llama_cpp.llama_sampler_chain_init(
            llama_cpp.llama_sampler_chain_default_params()
        )
        if biases:
            self._add(_bias_sampler(biases, vocab_size))
        if sampling.has_penalties:
            self._add_penalties(sampling, sequence.prompt, vocab_size)
        if sampling.temperature <= 0:
            self._add(llama_cpp.llama_sampler_init_greedy())
        else:
            self._add_draw(sampling)

    def choose(self, context: Any, index: int, row: Row) -> int:
        """The next token, from the logits of batch position `index`."""
        return int(llama_cpp.llama_sampler_sample(self._chain, context, index))

    def free(self) -> None:
        """Give the samplers back."""
        llama_cpp.llama_sampler_free(self._chain)

    def _add(self, sampler: Any) -> None:
        llama_cpp.llama_sampler_chain_add(self._chain, sampler)

    def _add_penalties(self, sampling: Sampling, prompt: tuple[int, ...], vocab_size: int) -> None:
        penalties = llama_cpp.llama_sampler_init_penalties(
            vocab_size,
            sampling.penalty_last_n,
            sampling.repeat_penalty,
            sampling.frequency_penalty,
            sampling.presence_penalty,
        )
        for token in prompt[-sampling.penalty_last_n :]:
            llama_cpp.llama_sampler_accept(penalties, token)
        self._add(penalties)

    def _add_draw(self, sampling: Sampling) -> None:
        if sampling.top_k > 0:
            self._add(llama_cpp.llama_sampler_init_top_k(sampling.top_k))
        if sampling.top_p < 1:
            self._add(llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1))
        if sampling.min_p > 0:
            self._add(llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1))
        self._add(llama_cpp.llama_sampler_init_temp(sampling.temperature))
        self._add(llama_cpp.llama_sampler_init_dist(sampling.seed % _RANDOM_SEED))


Sampler = Greedy | Chain


def make_sampler(sequence: NewSequence, vocab: LlamaVocab) -> Sampler:
    """The sampler of one sequence, to be freed when it has ended."""
    biases = _biases(sequence.sampling, vocab)
    if sequence.sampling.is_greedy:
        return Greedy(biases)
    return Chain(sequence, biases, vocab.size)


def _biases(sampling: Sampling, vocab: LlamaVocab) -> dict[int, float]:
    """Biases by token; ids outside the vocabulary have nothing to act on."""
    biases = {token: bias for token, bias in sampling.logit_bias if 0 <= token < vocab.size}
    never = vocab.suppressed_tokens
    if sampling.ignore_eos:
        never = never | vocab.end_tokens
    return biases | dict.fromkeys(never, -np.inf)


def _bias_sampler(biases: dict[int, float], vocab_size: int) -> Any:
    entries = (llama_cpp.llama_logit_bias * len(biases))(*biases.items())
    return llama_cpp.llama_sampler_init_logit_bias(vocab_size, len(biases), entries)
