"""llama.cpp's `mirostat` and `mirostat_v2`: a feedback loop that controls the tokens' surprise.

The candidates are cut so that the surprise of the tokens, in bits, stays near `mirostat_tau`.
https://arxiv.org/abs/2007.14966
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .mt19937 import Mt19937
from .sampling import Sampling
from .selection import FEW, Ids, Leaders, Row, highest, highest_mask, reaching
from .weights import Scratch, Weights, exponentials, shift_of

_NUM_RANKED = 100
"""Number of highest tokens that show how steeply the probabilities fall; llama.cpp's choice."""


class Mirostat:
    """The draws of one sequence."""

    def __init__(self, sampling: Sampling, rng: Mt19937) -> None:
        self._version = sampling.mirostat
        self._tau = np.float32(sampling.mirostat_tau)
        self._eta = np.float32(sampling.mirostat_eta)
        self._most_surprise = np.float32(2) * self._tau
        self._rng = rng

    def draw(self, row: Row, tops: Row, temperature: np.float32, scratch: Scratch) -> int:
        """Draw a token.

        `tops` are the tops of `row` (`selection`); the highest is finite, and no logit is NaN.
        """
        top, out = tops.max(), scratch.row("drawn", row.size)
        ranking = Ranking(row, tops, shift_of(top, temperature), temperature)
        weights = Weights(exponentials(row, top, temperature, out))
        ids = (self._steep if self._version == 1 else self._bounded)(weights, ranking)
        if isinstance(ids, Weights):
            return self._draw_of_many(ids, ranking)
        values = weights.values[ids]
        values = values[values > 0]  # the highest come first, so places stay
        probabilities = values / values.sum()
        place = place_of(probabilities, self._rng)
        self._learn(probabilities[place])
        return int(ids[place])

    def _draw_of_many(self, weights: Weights, ranking: "Ranking") -> int:
        """Draw from many tokens, which are ordered with the highest first."""
        token = weights.draw_sorted(self._rng.draw(), Leaders(ranking.row, ranking.tops))
        self._learn(weights.values[token] / np.float32(weights.total))
        return token

    def _learn(self, probability: np.float32) -> None:
        surprise = -np.log2(probability)
        if np.isfinite(surprise):
            self._most_surprise = self._most_surprise - self._eta * (surprise - self._tau)

    def _steep(self, weights: Weights, ranking: "Ranking") -> Ids | Weights:
        """Return the likeliest tokens within the allowed surprise, assuming a power law."""
        values = weights.values
        ids = ranking.highest(min(_NUM_RANKED, values.size))
        probabilities = values[ids] / np.float32(weights.total)
        ranks = np.arange(1, ids.size, dtype=np.float32)
        distances = np.log((ranks + 1) / ranks)
        falls = np.log(probabilities[:-1] / probabilities[1:])
        power = float(distances @ falls / (distances @ distances))
        count = _num_within(power, float(self._most_surprise), values.size)
        if count <= ids.size:
            return ids[:count]
        if count <= FEW:
            return ranking.highest(count)
        return weights if count == values.size else weights.only(highest_mask(values, count))

    def _bounded(self, weights: Weights, ranking: "Ranking") -> Ids | Weights:
        """Return the tokens within the allowed surprise, the highest first; at least one."""
        values, whole = weights.values, np.float32(weights.total)
        least = np.exp2(-self._most_surprise) * whole
        ids = ranking.few_from(least * np.float32(0.9999))
        if ids is None:
            passing = values >= least
            return weights if passing.all() else weights.only(passing)
        ids = ids[-np.log2(values[ids] / whole) <= self._most_surprise]
        return ids[np.argsort(-values[ids])] if ids.size else ranking.highest(1)


def place_of(probabilities: NDArray[np.float32], rng: Mt19937) -> int:
    """Draw like C++'s `std::discrete_distribution`; a single candidate takes no draw."""
    if probabilities.size < 2:
        return 0
    shares = probabilities.astype(np.float64)
    sums = (shares / shares.sum()).cumsum()
    sums[-1] = 1.0
    return int(sums.searchsorted(rng.draw()))


@dataclass(frozen=True, slots=True)
class Ranking:
    """A row's tokens in order, by its `tops`; a weight is `exp((logit - shift) / temperature)`.

    The highest logits are therefore the heaviest tokens.
    """

    row: Row
    tops: Row
    shift: np.float32
    temperature: np.float32

    def highest(self, count: int) -> Ids:
        """Return the `count` heaviest tokens, in order."""
        return highest(self.row, min(count, self.row.size), self.tops)

    def few_from(self, least: np.float32) -> Ids | None:
        """Return the tokens that weigh at least `least`, in the order of ids; `None` if many."""
        floor = self.shift + self.temperature * np.log(least)
        if int(np.count_nonzero(self.tops >= floor)) > FEW:
            return None
        ids = reaching(self.row, self.tops, floor)
        return ids if ids.size <= FEW else None


def _num_within(power: float, surprise: float, size: int) -> int:
    """Return how many ranks of a power law are within `surprise`: from 1 to `size`."""
    try:
        excess = power - 1
        share = excess * 2**surprise / (1 - size**-excess)
        count = share ** (1 / power)
    except (ArithmeticError, ValueError):
        return 1
    return int(min(max(count, 1), size)) if isinstance(count, float) and count > 0 else 1
