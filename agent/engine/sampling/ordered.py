"""Samplers in the request's own order, applied one after another like llama.cpp's chain.

`filters` is made for llama.cpp's own order, which nearly all requests have. Any other order is
implemented plainly here, and so is a dynamic temperature (`dynatemp_range`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ....shared.sampling import SamplerName
from .filters import most_typical
from .sampling import Sampling
from .selection import FEW, Ids, Row, highest


class Changes(Protocol):
    """Changes logits depending on earlier tokens."""

    def apply(self, row: Row) -> None:
        """Change `row`, which has a logit for each token."""


def left_in_order(
    row: Row,
    sampling: Sampling,
    histories: Mapping[SamplerName, Changes],
    draw_for_xtc: Callable[[], float],
) -> tuple[Ids, Row]:
    """Return the tokens that `sampling.order` keeps, and their logits after temperature.

    No logit may be NaN, and the highest must be finite. `row` is overwritten.
    """
    ids = np.flatnonzero(row > -np.inf)
    logits = row[ids]
    for name in sampling.order:
        if name in histories:
            row[ids] = logits
            histories[name].apply(row)
            logits = row[ids]
        elif name == "temperature" and sampling.has_dynamic_temperature:
            ids, logits = _heated(ids, logits, sampling)
        elif name == "temperature" and sampling.temperature > 0:
            logits = logits / np.float32(sampling.temperature)
        else:
            kept = _kept(name, logits, sampling, draw_for_xtc)
            ids, logits = ids[kept], logits[kept]
    return ids, logits


def _heated(ids: Ids, logits: Row, sampling: Sampling) -> tuple[Ids, Row]:
    """Sort the tokens and apply a dynamic temperature, which depends on their entropy.

    https://arxiv.org/abs/2309.02772
    """
    if logits.size < 2:
        return ids, logits
    order = np.argsort(-logits, kind="stable")
    ids, logits = ids[order], logits[order]
    probabilities = softmax(logits)
    some = probabilities[probabilities > 0]
    entropy = float(-(some * np.log(some)).sum()) / math.log(logits.size)
    low = max(0.0, sampling.temperature - sampling.dynatemp_range)
    high = sampling.temperature + sampling.dynatemp_range
    temperature = np.float32(low + (high - low) * max(entropy, 0.0) ** sampling.dynatemp_exponent)
    return (ids, logits / temperature) if temperature > 0 else (ids[:1], logits[:1])


def softmax(logits: Row) -> Row:
    """Return the probabilities of tokens with these logits."""
    weights: Row = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights


def _kept(
    name: str, logits: Row, sampling: Sampling, draw_for_xtc: Callable[[], float]
) -> Ids | NDArray[np.bool_]:
    """Return which of `logits` a sampler keeps, in their order or the highest first."""
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
        case "top_k" if sampling.top_k <= FEW:
            return highest(logits, min(sampling.top_k, logits.size))
        case "top_k":
            return np.argsort(-logits, kind="stable")[: sampling.top_k]
        case "top_p":
            order, probabilities = _sorted(logits)
            return order[: int(probabilities.cumsum().searchsorted(np.float32(sampling.top_p))) + 1]
        case "xtc" if logits.size < 2 or draw_for_xtc() > sampling.xtc_probability:
            return np.arange(logits.size)
        case "xtc":
            order, probabilities = _sorted(logits)
            num_above = int(np.count_nonzero(probabilities >= np.float32(sampling.xtc_threshold)))
            return order[max(num_above - 1, 0) :]
        case _:
            raise ValueError(f"there is no filter `{name}`")


def _sorted(logits: Row) -> tuple[Ids, Row]:
    """Return the order of `logits`, the highest first, and their probabilities in that order."""
    order = np.argsort(-logits, kind="stable")
    weights = np.exp(logits[order] - logits.max())
    return order, weights / weights.sum()
