"""The counts of one step of the history, for the fleet, an agent or a model.

`StepTally` counts events during the step. `Sums` is the result, and several sums can be added up.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..fleet.recorder import Ending

# ---- latencies: durations as counts by bucket

# Sums of histograms are exact, percentiles within an eighth. A histogram is a tuple of bucket and
# count in turn, of the buckets that are not empty: most steps fill few. Bucket 0 holds all below
# `FIRST`, each next one is a quarter wider, the last has no end. Without numpy, which the balancer
# needs for nothing else: loading it takes 0.15 s at every start.

FIRST = 0.0005
"""The upper bound of the first bucket in seconds."""

RATIO = 1.25
NUM_BUCKETS = 58
"""The number of buckets. The last bucket ends above two minutes."""

LAST = NUM_BUCKETS - 1
_BOUNDS = tuple(FIRST * RATIO**power for power in range(LAST))

Histogram = tuple[int, ...]


def histogram(durations: Sequence[float]) -> Histogram:
    """Return the histogram of `durations`, in seconds."""
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
    """Return the sum of several histograms."""
    counts: Counter[int] = Counter()
    for each in histograms:
        for bucket, count in _pairs(each):
            counts[bucket] += count
    return tuple(part for pair in sorted(counts.items()) for part in pair)


def num_counted(counts: Histogram) -> int:
    """Return the number of durations in a histogram."""
    return sum(counts[1::2])


def percentile(counts: Histogram, share: float) -> float | None:
    """Return the duration in seconds that a `share` (0 to 1) of all durations does not exceed.

    Returns `None` if the histogram is empty.
    """
    rank = share * num_counted(counts)
    seen = 0
    for bucket, count in _pairs(counts):
        if seen + count >= rank:
            return _within(bucket, (rank - seen) / count)
        seen += count
    return None


def _within(bucket: int, share: float) -> float:
    """Return the duration at `share` of a bucket, on a logarithmic scale."""
    lower = FIRST * RATIO ** (bucket - 1)
    return float(lower * RATIO**share)


def _pairs(counts: Histogram) -> Iterable[tuple[int, int]]:
    return zip(counts[::2], counts[1::2], strict=True)


MAX_DURATIONS = 16_384
"""The maximum durations that are kept in a list before they are counted in buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The counts of a step. `ended` counts requests by the way they ended.

    Prompt tokens are counted when their request ends.
    """

    completion_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ended: dict[str, int]
    first_token: Histogram = ()
    between_tokens: Histogram = ()


def add(parts: Sequence[Sums]) -> Sums:
    """Return the sum of `parts`."""
    if len(parts) == 1:
        return parts[0]
    ended: Counter[str] = Counter()
    for part in parts:
        ended.update(part.ended)
    return Sums(
        completion_tokens=sum(part.completion_tokens for part in parts),
        prompt_tokens=sum(part.prompt_tokens for part in parts),
        cached_tokens=sum(part.cached_tokens for part in parts),
        ended=dict(ended),
        first_token=merged(part.first_token for part in parts),
        between_tokens=merged(part.between_tokens for part in parts),
    )


class StepTally:
    """Counts events. A call covers a frame or an ended request, not a single token."""

    __slots__ = (
        "_between",
        "_cached",
        "_ended",
        "_firsts",
        "_gaps",
        "_num_gaps",
        "_prompt",
        "_tokens",
    )

    def __init__(self) -> None:
        self._tokens = 0
        self._prompt = 0
        self._cached = 0
        self._ended: Counter[str] = Counter()
        self._firsts: list[float] = []
        self._gaps: list[Sequence[float]] = []
        self._num_gaps = 0
        self._between: list[Histogram] = []

    def tokens(self, count: int) -> None:
        """Count delivered tokens."""
        self._tokens += count

    def first_token(self, seconds: float) -> None:
        """Record the time to the first token of a request."""
        self._firsts.append(seconds)

    def between_tokens(self, gaps: Sequence[float]) -> None:
        """Record the times between texts of answers."""
        self._gaps.append(gaps)
        self._num_gaps += len(gaps)
        if self._num_gaps > MAX_DURATIONS:
            self._count_gaps()

    def ended(self, ending: Ending) -> None:
        """Record the end of a request."""
        self._ended[ending.code] += 1
        self._prompt += ending.usage.prompt_tokens
        self._cached += ending.usage.cached_tokens

    def sums(self) -> Sums:
        """The counts so far."""
        self._count_gaps()
        return Sums(
            completion_tokens=self._tokens,
            prompt_tokens=self._prompt,
            cached_tokens=self._cached,
            ended=dict(self._ended),
            first_token=histogram(self._firsts),
            between_tokens=merged(self._between),
        )

    def _count_gaps(self) -> None:
        self._between.append(histogram([gap for gaps in self._gaps for gap in gaps]))
        self._gaps = []
        self._num_gaps = 0
