"""Top-k, top-p, min-p, typical, top-n-sigma and XTC: llama.cpp's filters without its arrays.

llama.cpp copies every logit into an entry of twelve bytes and orders the entries, which for a large
vocabulary costs more than all the rest of a step's bookkeeping. Here the row is read where it lies,
and only what may pass is copied. `candidates` are what llama.cpp's samplers `top_k`, `typ_p`,
`top_p` and `min_p` leave, in that order; `within_deviations` is `top_n_sigma`, which comes before
them, and `without_top_choices` is `xtc`, which comes after. The same tokens pass, in the same order
where there is one.
"""

import math

import numpy as np
from numpy.typing import NDArray

from .sampling import Sampling

Row = NDArray[np.float32]
Ids = NDArray[np.intp]

COLUMN = 32
"""Logits in a column of the table that is searched for the highest."""
GLANCES = (256, 8192)
"""How many tokens are put in order before all of them are: nearly every nucleus lies in these."""


def without_nan(row: Row) -> Row:
    """`row` with the tokens ruled out whose logits are no numbers."""
    return np.where(np.isnan(row), np.float32(-np.inf), row)


def candidates(row: Row, sampling: Sampling) -> Ids | None:
    """Ids of the tokens that may be chosen, at least one; `None` where all may.

    With `top_k` or `top_p` the highest logits come first, with `typical_p` alone the most typical
    ones, otherwise ids ascend. No logit of `row` may be NaN, and the highest is to be finite.
    """
    if sampling.typical_p < 1:
        return _typical_candidates(row, sampling)
    if sampling.top_k > 0:
        ids = highest(row, min(sampling.top_k, row.size))
        return ids[: _num_passing(row[ids], sampling)]
    if sampling.top_p < 1:
        return _nucleus(row, sampling)
    if sampling.min_p > 0:
        return np.flatnonzero(row >= _floor(row.max(), sampling))
    return None


def highest(row: Row, count: int) -> Ids:
    """Ids of the `count` highest logits in descending order."""
    ids = _contenders(row, count)
    return ids[np.argsort(-row[ids])[:count]]


def within_deviations(row: Row, num_deviations: float) -> Ids:
    """Ids of the logits that are no further below the highest than so many deviations, ascending.

    The standard deviation is that of the finite logits. https://arxiv.org/abs/2411.07641
    """
    finite = row if row.min() > -np.inf else row[row > -np.inf]
    deviation = finite.std()
    if not np.isfinite(deviation):  # the logits are too large to be squared
        deviation = np.float32(finite.std(dtype=np.float64))
    return np.flatnonzero(row >= finite.max() - np.float32(num_deviations) * deviation)


def most_typical(logits: Row, mass: float) -> Ids:
    """Places of the logits whose surprise is nearest to the expected one, up to `mass` in all.

    The nearest comes first. https://arxiv.org/abs/2202.00666
    """
    depths = logits.max() - logits
    weights = np.exp(-depths)
    whole = weights.sum()
    probabilities = weights / whole
    surprises = depths + np.log(whole)
    expected = probabilities @ np.where(probabilities > 0, surprises, np.float32(0))
    nearness = -np.abs(surprises - expected)
    for count in (*GLANCES, logits.size):
        places = highest(nearness, min(count, logits.size))
        passed = probabilities[places].cumsum() > np.float32(mass)
        if passed.any():
            return places[: int(passed.argmax()) + 1]
    return places


def without_top_choices(row: Row, ids: Ids | None, threshold: float) -> Ids:
    """The tokens, likeliest first, less those of `threshold` or more, of which the last stays.

    https://github.com/oobabooga/text-generation-webui/pull/6335
    """
    if ids is None:
        ids = np.arange(row.size)
    ids = ids[np.argsort(-row[ids], kind="stable")]
    weights = np.exp(row[ids] - row[ids[0]])
    probabilities = weights / weights.sum()
    is_above = (probabilities >= np.float32(threshold)) & (probabilities > 0)
    num_above = int(np.count_nonzero(is_above))
    return ids[max(num_above - 1, 0) :]


def _contenders(row: Row, count: int) -> Ids:
    """Ids of all logits that reach a bound which `count` or more of them reach, and not many more.

    The row is laid out as a table. The highest of each of so many columns is one of `count` logits
    that reach the lowest of these; only columns whose highest does can hold others.
    """
    width = row.size // COLUMN
    if count > width:
        bound = np.partition(row, -count)[-count]
        return np.flatnonzero(row >= bound) if bound > -np.inf else _allowed(row, count)
    size = COLUMN * width
    table = row[:size].reshape(COLUMN, width)
    tops = table.max(axis=0)
    bound = np.partition(tops, -count)[-count]
    if bound == -np.inf:
        return _allowed(row, count)
    columns = np.flatnonzero(tops >= bound)
    lines, places = np.nonzero(table[:, columns] >= bound)
    rest = np.flatnonzero(row[size:] >= bound)
    return np.concatenate((lines * width + columns[places], size + rest))


def _allowed(row: Row, count: int) -> Ids:
    """Ids that are not ruled out, or `count` where they are fewer.

    A constraint can rule out nearly the whole vocabulary, and the bound then keeps nothing away.
    """
    allowed = np.flatnonzero(row > -np.inf)
    missing = count - allowed.size
    if missing <= 0:
        return allowed
    # Among the first `count` so many are ruled out at least.
    return np.concatenate((allowed, np.flatnonzero(row[:count] == -np.inf)[:missing]))


def _typical_candidates(row: Row, sampling: Sampling) -> Ids:
    count = min(sampling.top_k, row.size)
    ids = highest(row, count) if count else np.arange(row.size)
    ids = ids[most_typical(row[ids], sampling.typical_p)]
    if sampling.top_p < 1:
        ids = ids[np.argsort(-row[ids])]
        return ids[: _num_passing(row[ids], sampling)]
    if sampling.min_p > 0:
        return ids[row[ids] >= _floor(row[ids].max(), sampling)]
    return ids


def _nucleus(row: Row, sampling: Sampling) -> Ids:
    whole = np.exp(row - row.max()).sum()
    for count in GLANCES:
        ids = highest(row, min(count, row.size))
        num_passing = _num_passing(row[ids], sampling, whole)
        if num_passing < count:
            return ids[:num_passing]
    ids = np.argsort(-row)
    return ids[: _num_passing(row[ids], sampling, whole)]


def _num_passing(logits: Row, sampling: Sampling, whole: np.float32 | None = None) -> int:
    """How many of `logits`, in descending order, pass.

    `whole` is the sum that makes weights probabilities where `logits` are only a part.
    """
    num_passing = logits.size
    if sampling.top_p < 1:
        sums = np.exp(logits - logits[0]).cumsum()
        target = np.float32(sampling.top_p) * (sums[-1] if whole is None else whole)
        num_passing = min(int(sums.searchsorted(target)) + 1, num_passing)
    if sampling.min_p > 0:
        passing = logits >= _floor(logits[0], sampling)
        num_passing = min(num_passing, int(np.count_nonzero(passing)))
    return num_passing


def _floor(highest: np.float32, sampling: Sampling) -> np.float32:
    return np.float32(highest + np.float32(math.log(sampling.min_p)))
