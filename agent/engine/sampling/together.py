"""Draws the tokens of many rows at once, if the filters of all keep a few highest tokens.

Each row is searched for its highest tokens, one after the other, so that a row stays in the
processor's cache. For the remaining work NumPy's calls cost more than their computations: some
twenty calls for forty tokens. Here each of these calls is for all rows of a step.

A row gets the same token as from `filters.Pool`, bit for bit. It gets none if that is not certain:
if the row is broken, if it rules out nearly all tokens, or if its highest tokens have equals,
whose order is not defined.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....shared.sampling import SamplerName
from .sampling import Sampling
from .selection import LEAST_DRAW, Ids, Row, contenders, tops_of

MOST = 128
"""Maximum tokens that a row keeps."""

_FILTERS: frozenset[SamplerName] = frozenset({"top_k", "top_p", "min_p"})

_SPARE = 16
"""Contenders for each kept token; if there are more, many logits are equal."""

_NONE: tuple[Ids, Row] = np.empty(0, np.intp), np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class Cut:
    """The filters of a row: keep the `count` highest tokens, of these a nucleus, and apply min-p.

    `depth` is the logarithm of min-p.
    """

    count: int
    mass: np.float32
    depth: np.float32
    temperature: np.float32


def cut_of(sampling: Sampling, temperature: np.float32) -> Cut | None:
    """Return the filters of `sampling`; `None` if they are others, or may keep many tokens."""
    if not 0 < sampling.top_k <= MOST or sampling.temperature <= 0:
        return None
    if sampling.mirostat or sampling.order or sampling.top_log_probs is not None:
        return None
    if not _FILTERS.issuperset(sampling.filters):
        return None
    depth = math.log(sampling.min_p) if sampling.min_p > 0 else -math.inf
    mass = sampling.top_p if sampling.top_p < 1 else math.inf
    return Cut(sampling.top_k, np.float32(mass), np.float32(depth), temperature)


def draw_together(rows: Row, cuts: Sequence[Cut], draw: Callable[[int], float]) -> list[int | None]:
    """Return the token of each of `rows`, or `None` if the row's sampler has to choose alone.

    `draw` gives the uniform draw in [0, 1) of a row that gets a token.
    """
    counts = np.array([cut.count for cut in cuts])
    most = int(counts.max()) + 1  # one more, which may be equal to the last one
    ids, logits = _highest([_contenders(row, most) for row in rows], most)
    is_out = np.arange(most) >= counts[:, None]
    are_unlike = (logits[:, 1:] < logits[:, :-1]) | is_out[:, :-1]
    sure = (np.isfinite(logits[:, 0]) & are_unlike.all(axis=1)).tolist()
    numbers = [draw(index) if is_sure else 0.0 for index, is_sure in enumerate(sure)]
    places = _places(logits, is_out, cuts, np.array(numbers))
    tokens = ids[np.arange(len(cuts)), places].tolist()
    return [token if is_sure else None for token, is_sure in zip(tokens, sure, strict=True)]


def _contenders(row: Row, count: int) -> tuple[Ids, Row]:
    """Return at least `count` highest tokens and their logits; none if they are many."""
    tops = tops_of(row)
    if count <= tops.size and math.isfinite(tops.max()):
        ids = contenders(row, count, tops)
        if ids.size <= MOST * _SPARE:
            return ids, row[ids]
    return _NONE


def _highest(found: Sequence[tuple[Ids, Row]], count: int) -> tuple[Ids, Row]:
    """Return ids and logits of each row's `count` highest `found` tokens, descending."""
    width = max(count, max(ids.size for ids, _ in found))
    all_ids = np.zeros((len(found), width), np.intp)
    depths = np.full((len(found), width), np.inf, np.float32)
    for line, depth, (ids, logits) in zip(all_ids, depths, found, strict=True):
        line[: ids.size] = ids
        depth[: ids.size] = -logits
    lines, order = np.arange(len(found))[:, None], depths.argsort(axis=1)[:, :count]
    return all_ids[lines, order], -depths[lines, order]


def _places(
    logits: Row, is_out: NDArray[np.bool_], cuts: Sequence[Cut], numbers: NDArray[np.float64]
) -> Ids:
    """Return the place of the token that each row's number draws.

    `logits` are in order. Logits marked in `is_out` are not among the highest, and are not drawn.
    """
    masses = np.array([cut.mass for cut in cuts], np.float32)
    floors = logits[:, 0] + np.array([cut.depth for cut in cuts], np.float32)
    temperatures = np.array([cut.temperature for cut in cuts], np.float32)
    depths = logits - logits[:, :1]
    weights = np.exp(depths)
    weights[is_out] = 0
    sums = weights.cumsum(axis=1)
    is_out[:, 1:] |= sums[:, :-1] >= (masses * sums[:, -1])[:, None]
    is_out |= logits < floors[:, None]
    weights = np.exp(depths / temperatures[:, None])
    weights[is_out] = 0
    wide = weights.astype(np.float64).cumsum(axis=1)
    marks = np.maximum(numbers * wide[:, -1], LEAST_DRAW)
    places: Ids = (wide < marks[:, None]).sum(axis=1)
    return places
