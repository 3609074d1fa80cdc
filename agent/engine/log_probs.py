"""Log-probabilities of a token and of the likeliest, from the logits as the model gave them."""

from dataclasses import dataclass

import numpy as np

from .candidates import Row, highest

LEAST = -9999.0
"""What is told of a token that the model rules out: no JSON has an infinity."""


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Natural logarithms: of the `token` that was chosen, and of the `top` ones, best first."""

    token: int
    log_prob: float
    top: tuple[tuple[int, float], ...] = ()


class RawRow:
    """A row of logits before anything is done to it. Keeps a copy; NaN counts as ruled out."""

    def __init__(self, row: Row, num_top: int) -> None:
        self._row = row.copy()
        self._num_top = min(num_top, row.size)

    def of(self, token: int) -> LogProbs:
        """What there is to tell of `token` if it is chosen."""
        row = self._row
        with np.errstate(all="ignore"):
            best = row.max()
            whole = float(best) + np.log(np.exp(row - best).sum(dtype=np.float64))
        ids = highest(row, self._num_top).tolist() if self._num_top else ()
        top = tuple((id, _finite(float(row[id]) - whole)) for id in ids)
        return LogProbs(token, _finite(float(row[token]) - whole), top)


def _finite(log_prob: float) -> float:
    return min(float(log_prob), 0.0) if log_prob > LEAST else LEAST
