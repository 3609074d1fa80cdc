"""Durations as counts by bucket: sums of them are exact, percentiles within an eighth.

A histogram is a tuple of bucket and count in turn, of the buckets that are not empty: most steps
fill few. Bucket 0 holds all below `FIRST`, each next one is a quarter wider, the last has no end.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

FIRST = 0.0005
"""Upper bound of the first bucket, in seconds."""

RATIO = 1.25
NUM_BUCKETS = 58
"""The last bound is above two minutes."""

_BOUNDS = FIRST * RATIO ** np.arange(NUM_BUCKETS - 1)

Histogram = tuple[int, ...]


def histogram(durations: Sequence[float]) -> Histogram:
    """Count these, in seconds."""
    if not durations:
        return ()
    buckets = np.searchsorted(_BOUNDS, np.asarray(durations), side="left")
    counts = np.bincount(buckets, minlength=NUM_BUCKETS)
    filled = np.flatnonzero(counts)
    return tuple(np.column_stack((filled, counts[filled])).ravel().tolist())


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All of them in one."""
    counts: Counter[int] = Counter()
    for each in histograms:
        for bucket, count in _pairs(each):
            counts[bucket] += count
    return tuple(part for pair in sorted(counts.items()) for part in pair)


def num_counted(counts: Histogram) -> int:
    """How many durations it holds."""
    return sum(counts[1::2])


def percentile(counts: Histogram, share: float) -> float | None:
    """The duration that `share` of all (0 to 1) do not exceed, in seconds; of none, `None`."""
    wanted = share * num_counted(counts)
    seen = 0
    for bucket, count in _pairs(counts):
        if seen + count >= wanted:
            return _within(bucket, (wanted - seen) / count)
        seen += count
    return None


def _within(bucket: int, share: float) -> float:
    """As if a bucket's durations were spread evenly over its powers."""
    lower = FIRST * RATIO ** (bucket - 1)
    return float(lower * RATIO**share)


def _pairs(counts: Histogram) -> Iterable[tuple[int, int]]:
    return zip(counts[::2], counts[1::2], strict=True)
