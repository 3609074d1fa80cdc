"""Durations as counts by bucket: sums of them are exact, percentiles within an eighth.

A histogram is a tuple of bucket and count in turn, of the buckets that are not empty: most steps
fill few. Bucket 0 holds all below `FIRST`, each next one is a quarter wider, the last has no end.

Without numpy, which the balancer needs for nothing else: loading it takes 0.15 s at every start.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

FIRST = 0.0005
"""Upper bound of the first bucket, in seconds."""

RATIO = 1.25
NUM_BUCKETS = 58
"""The last bound is above two minutes."""

LAST = NUM_BUCKETS - 1
_BOUNDS = tuple(FIRST * RATIO**power for power in range(LAST))

Histogram = tuple[int, ...]


def histogram(durations: Sequence[float]) -> Histogram:
    """Count these, in seconds."""
    ordered = sorted(durations)  # sorting is faster than looking for each one's bucket
    counts: list[int] = []
    start = bucket = 0
    while start < len(ordered):
        bucket = bisect_left(_BOUNDS, ordered[start], bucket)
        end = bisect_right(ordered, _BOUNDS[bucket], start) if bucket < LAST else len(ordered)
        counts += (bucket, end - start)
        start = end
    return tuple(counts)


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
