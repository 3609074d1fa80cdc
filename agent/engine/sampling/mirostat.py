"""llama.cpp's `mirostat` and `mirostat_v2`: a feedback loop that holds the tokens' surprise.

What may be drawn is cut so that the surprise of the tokens, in bits, stays near `mirostat_tau`.
https://arxiv.org/abs/2007.14966
"""

import numpy as np
from numpy.typing import NDArray

from .filters import Ids, Row, highest
from .mt19937 import Mt19937
from .sampling import Sampling

_NUM_RANKED = 100
"""How many of the highest tell how steeply the probabilities fall; llama.cpp's choice."""


class Mirostat:
    """The draws of one sequence."""

    def __init__(self, sampling: Sampling, rng: Mt19937) -> None:
        self._version = sampling.mirostat
        self._tau = np.float32(sampling.mirostat_tau)
        self._eta = np.float32(sampling.mirostat_eta)
        self._most_surprise = np.float32(2) * self._tau
        self._rng = rng

    def draw(self, row: Row) -> int:
        """A token. The highest logit is finite, and none is NaN; temperature has been applied."""
        top = row.max()
        whole = np.exp(row - top).sum()
        ids = self._steep(row, top, whole) if self._version == 1 else self._bounded(row, top, whole)
        weights = np.exp(row[ids] - top)
        weights = weights[weights > 0]  # the highest come first, so places stay
        probabilities = weights / weights.sum()
        place = self._place(probabilities)
        surprise = -np.log2(probabilities[place])
        if np.isfinite(surprise):
            self._most_surprise = self._most_surprise - self._eta * (surprise - self._tau)
        return int(ids[place])

    def _steep(self, row: Row, top: np.float32, whole: np.float32) -> Ids:
        """The likeliest tokens that fit the surprise, if probabilities fall by a power law."""
        ids = highest(row, min(_NUM_RANKED, row.size))
        probabilities = np.exp(row[ids] - top) / whole
        ranks = np.arange(1, ids.size, dtype=np.float32)
        distances = np.log((ranks + 1) / ranks)
        falls = np.log(probabilities[:-1] / probabilities[1:])
        power = float(distances @ falls / (distances @ distances))
        count = _num_within(power, float(self._most_surprise), row.size)
        return ids[:count] if count <= ids.size else highest(row, count)

    def _bounded(self, row: Row, top: np.float32, whole: np.float32) -> Ids:
        """Those that are no more surprising than allowed, the highest first; one at least."""
        surprises = -np.log2(np.exp(row - top) / whole)
        ids = np.flatnonzero(surprises <= self._most_surprise)
        return ids[np.argsort(-row[ids])] if ids.size else highest(row, 1)

    def _place(self, probabilities: NDArray[np.float32]) -> int:
        """Draw like C++'s `std::discrete_distribution`: nothing where there is no choice."""
        if probabilities.size < 2:
            return 0
        shares = probabilities.astype(np.float64)
        sums = (shares / shares.sum()).cumsum()
        sums[-1] = 1.0
        return int(sums.searchsorted(self._rng.draw()))


def _num_within(power: float, surprise: float, size: int) -> int:
    """How many ranks of a power law keep the surprise; at least one, at most `size`."""
    try:
        excess = power - 1
        share = excess * 2**surprise / (1 - size**-excess)
        count = share ** (1 / power)
    except (ArithmeticError, ValueError):
        return 1
    return int(min(max(count, 1), size)) if isinstance(count, float) and count > 0 else 1
