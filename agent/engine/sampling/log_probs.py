"""Log-probabilities of a token and of the likeliest tokens, from the model's own logits.

NaN counts as ruled out.
"""

from dataclasses import dataclass

import numpy as np

from .selection import Ids, Row, highest, tops_of, without_nan
from .weights import ONE, Scratch, Weights, exponentials, shift_of

LEAST = -9999.0
"""Reported for a token that the model rules out, since JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Natural logarithms for the `token` that followed, and for the `top` tokens, best first."""

    token: int
    log_prob: float
    top: tuple[tuple[int, float], ...] = ()


class RawRow:
    """A row of logits before any change, and its `num_top` likeliest tokens.

    If the row `will_change`, it is copied to `scratch`, valid until the next row. Filters that
    begin with the `num_ranked` highest tokens find these tokens here.
    """

    def __init__(
        self, row: Row, num_top: int, scratch: Scratch, *, will_change: bool, num_ranked: int = 0
    ) -> None:
        with np.errstate(all="ignore"):
            self.tops = tops_of(row)
            """The highest logit of each column in the current row; see `selection`."""
            if np.isnan(top := self.tops.max()):
                row = without_nan(row)
                self.tops = tops_of(row)
                top = self.tops.max()
            out = scratch.row("likely", row.size)
            self.likely = Weights(exponentials(row, top, ONE, out))
            """The weights of the current row."""
            self._whole = float(shift_of(top)) + float(np.log(self.likely.total))
        self.ranked: Ids | None = None
        """The `num_ranked` highest tokens in order, if known."""
        if num_top:
            num_found = max(num_top, num_ranked)
            ids = highest(row, min(num_found, row.size), self.tops)
            self.ranked = ids if num_found == num_ranked else None
            self._top = self._described(row, ids[:num_top])
        else:
            self._top = ()
        if will_change:
            kept = scratch.row("raw", row.size)
            np.copyto(kept, row)
            row = kept
        self._row = row

    def _described(self, row: Row, ids: Ids) -> tuple[tuple[int, float], ...]:
        log_probs = (_finite(logit - self._whole) for logit in row[ids].tolist())
        return tuple(zip(ids.tolist(), log_probs, strict=True))

    def of(self, token: int) -> LogProbs:
        """Return the log-probabilities for `token`, if `token` is the one that follows."""
        return LogProbs(token, _finite(float(self._row[token]) - self._whole), self._top)


def _finite(log_prob: float) -> float:
    return min(float(log_prob), 0.0) if log_prob > LEAST else LEAST
