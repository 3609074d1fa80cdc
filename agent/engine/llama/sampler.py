"""Choosing a sequence's next token from its row of logits.

What llama.cpp's own chain does, in the order of its `common_sampler`: biases, penalties, top-k,
top-p, min-p, temperature, and the draw by seed. The draws are those of llama.cpp's `dist` too, so
the same seed gives the same tokens there. As in llama-server the penalties' history begins with the
prompt, so a token that the prompt repeats is penalised in the answer.
"""

from collections import Counter, deque
from typing import Any, Protocol

import numpy as np

from ..candidates import Row, candidates
from ..sampling import Sampling
from ..sequence import NewSequence

_LEAST_TEMPERATURE = np.finfo(np.float32).tiny
"""What logits can be divided by; from far above it on only the best is ever drawn."""


class Vocab(Protocol):
    """What a sampler has to know of a vocabulary."""

    @property
    def size(self) -> int: ...
    @property
    def end_tokens(self) -> frozenset[int]: ...
    @property
    def suppressed_tokens(self) -> frozenset[int]: ...


class Sampler:
    """Chooses the tokens of one sequence, and remembers what it chose where that matters.

    Who asks for tokens that may not be kept (a guess to be checked) asks row by row, and stops at
    the first that differs: what was chosen counts as said.
    """

    def __init__(self, sequence: NewSequence, vocab: Vocab) -> None:
        self._sampling = sequence.sampling
        biases = _biases(sequence.sampling, vocab)
        self._biased = np.array(list(biases.keys()), np.intp)
        self._biases = np.array(list(biases.values()), np.float32)
        self._penalties = _Penalties(sequence) if sequence.sampling.has_penalties else None
        self._temperature = max(np.float32(sequence.sampling.temperature), _LEAST_TEMPERATURE)
        self._chance = _Chance(sequence.sampling.seed)

    def choose(self, row: Row) -> int:
        """The next token. `row`, the logits of the one before, is overwritten."""
        with np.errstate(all="ignore"):  # a broken row, or a tiny temperature, warns nobody
            if self._biased.size:
                row[self._biased] += self._biases
            if self._penalties is None:
                return self._pick(row)
            self._penalties.apply(row)
            token = self._pick(row)
            self._penalties.accept(token)
            return token

    def _pick(self, row: Row) -> int:
        best = int(row.argmax())
        # Without a finite highest logit (NaN counts as one) there is nothing to draw from.
        if self._sampling.temperature <= 0 or not np.isfinite(row[best]):
            return best
        ids = candidates(row, self._sampling)
        logits = row if ids is None else row[ids]
        weights = np.exp((logits - row[best]) / self._temperature)
        sums = weights.cumsum(dtype=np.float64)
        place = int(sums.searchsorted(self._chance.draw() * sums[-1]))
        return place if ids is None else int(ids[place])


class _Penalties:
    """llama.cpp's `penalties`: for repetition, presence and frequency among the last tokens."""

    def __init__(self, sequence: NewSequence) -> None:
        self._sampling = sequence.sampling
        self._last: deque[int] = deque()
        self._counts: Counter[int] = Counter()
        for token in sequence.prompt[-sequence.sampling.penalty_last_n :]:
            self.accept(token)

    def accept(self, token: int) -> None:
        if len(self._last) == self._sampling.penalty_last_n:
            oldest = self._last.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        self._last.append(token)
        self._counts[token] += 1

    def apply(self, row: Row) -> None:
        if not self._counts:
            return
        size = len(self._counts)
        tokens = np.fromiter(self._counts.keys(), np.intp, size)
        counts = np.fromiter(self._counts.values(), np.float32, size)
        repeat = np.float32(self._sampling.repeat_penalty)
        logits = row[tokens]
        logits = np.where(logits <= 0, logits * repeat, logits / repeat)
        frequency, presence = self._sampling.frequency_penalty, self._sampling.presence_penalty
        row[tokens] = logits - (counts * np.float32(frequency) + np.float32(presence))


class _Chance:
    """The numbers that C++'s `std::mt19937` and `std::uniform_real_distribution` draw."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.MT19937()
        state: Any = np.random.RandomState(seed).get_state(legacy=False)
        self._bits.state = state

    def draw(self) -> float:
        """Evenly between 0 and 1."""
        low, high = self._bits.random_raw(), self._bits.random_raw()
        return float(low + (high << 32)) / 2**64


def _biases(sampling: Sampling, vocab: Vocab) -> dict[int, float]:
    """Biases by token; ids outside the vocabulary have nothing to act on."""
    biases = {token: bias for token, bias in sampling.logit_bias if 0 <= token < vocab.size}
    never = vocab.suppressed_tokens
    if sampling.ignore_eos:
        never = never | vocab.end_tokens
    return biases | dict.fromkeys(never, -np.inf)
