"""Log-probabilities of a token and of the likeliest, from the logits as the model gave them.

NaN counts as ruled out.
"""

from dataclasses import dataclass

import numpy as np

from .filters import Row, highest, without_nan

LEAST = -9999.0
"""Reported for a token that the model rules out, since JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Natural logarithms: of the `token` that followed, and of the `top` ones, best first."""

    token: int
    log_prob: float
    top: tuple[tuple[int, float], ...] = ()


class RawRow:
    """A row of logits before anything is done to it. Keeps a copy."""

    def __init__(self, row: Row, num_top: int) -> None:
        self._row = row.copy()
        self._num_top = num_top

    def of(self, token: int) -> LogProbs:
        """The log-probabilities for `token`, if it is chosen."""
        return log_probs_of(self._row, token, self._num_top)


def log_probs_of(row: Row, token: int, num_top: int) -> LogProbs:
    """What the logits in `row` say of `token`, and of the `num_top` likeliest."""
    with np.errstate(all="ignore"):
        best = row.max()
        if np.isnan(best):
            row = without_nan(row)
            best = row.max()
        whole = float(best) + np.log(np.exp(row - best).sum(dtype=np.float64))
    ids = highest(row, min(num_top, row.size)).tolist() if num_top else ()
    top = tuple((id, _finite(float(row[id]) - whole)) for id in ids)
    return LogProbs(token, _finite(float(row[token]) - whole), top)


def _finite(log_prob: float) -> float:
    return min(float(log_prob), 0.0) if log_prob > LEAST else LEAST
