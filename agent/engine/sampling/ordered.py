"""Samplers in an order of the request's own, one after another, as llama.cpp's chain applies them.

llama.cpp's own order is what `filters` is made for, and nearly all requests have that. Any other
order is said plainly here.
"""

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .filters import most_typical
from .sampling import Sampling
from .selection import Ids, Row


class Changes(Protocol):
    """Changes the logits of what was said before."""

    def apply(self, row: Row) -> None:
        """Change `row`, which has a logit for each token."""


def left_in_order(
    row: Row,
    sampling: Sampling,
    histories: Mapping[str, Changes],
    draw_for_xtc: Callable[[], float],
) -> tuple[Ids, Row]:
    """The tokens that `sampling.samplers` leave, and their logits; temperature has been applied.

    No logit may be NaN, and the highest is finite. `row` is overwritten.
    """
    ids = np.flatnonzero(row > -np.inf)
    logits = row[ids]
    for name in sampling.samplers:
        if name in histories:
            row[ids] = logits
            histories[name].apply(row)
            logits = row[ids]
        elif name == "temperature" and sampling.temperature > 0:
            logits = logits / np.float32(sampling.temperature)
        else:
            kept = _kept(name, logits, sampling, draw_for_xtc)
            ids, logits = ids[kept], logits[kept]
    return ids, logits


def _kept(
    name: str, logits: Row, sampling: Sampling, draw_for_xtc: Callable[[], float]
) -> Ids | NDArray[np.bool_]:
    """Which of `logits` a sampler keeps; the highest come first, unless it keeps their order."""
    top = logits.max()
    match name:
        case "temperature":  # of 0, which keeps the highest alone
            return np.array([logits.argmax()])
        case "top_n_sigma":
            return np.asarray(logits >= top - np.float32(sampling.top_n_sigma) * logits.std())
        case "min_p":
            return np.asarray(logits >= top + np.float32(math.log(sampling.min_p)))
        case "typ_p":
            return most_typical(logits, sampling.typical_p)
        case _:
            pass
    order = np.argsort(-logits, kind="stable")
    if name == "top_k":
        return order[: sampling.top_k]
    weights = np.exp(logits[order] - top)
    probabilities = weights / weights.sum()
    if name == "top_p":
        return order[: int(probabilities.cumsum().searchsorted(np.float32(sampling.top_p))) + 1]
    if logits.size < 2 or draw_for_xtc() > sampling.xtc_probability:
        return order
    num_above = int(np.count_nonzero(probabilities >= np.float32(sampling.xtc_threshold)))
    return order[max(num_above - 1, 0) :]
