"""From samples to figures, and from figures of several rounds to medians, ratios and spreads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import median, quantiles

from bench.sample import Sample

Figures = Mapping[str, float]
"""One round of one server, by name. Times in seconds."""

Rounds = dict[str, list[dict[str, float]]]
"""The figures of each side, one mapping a round."""

TOKENS_PER_SECOND = "tokens per second"
FIRST_TOKEN = "first token"
FIRST_TOKEN_P95 = "first token, 95 %"
BETWEEN_TOKENS = "between tokens"
BETWEEN_TOKENS_P99 = "between tokens, 99 %"
LONGEST_GAP = "longest gap"


class RequestsFailed(Exception):
    """A failure has no speed, so there are no figures."""


def check(samples: Iterable[Sample]) -> None:
    """Raises `RequestsFailed` when a request failed."""
    samples = list(samples)
    failures = [sample.failure for sample in samples if sample.failure]
    if failures:
        raise RequestsFailed(f"{len(failures)} of {len(samples)} requests failed: {failures[0]}")


def of_burst(samples: Sequence[Sample]) -> dict[str, float]:
    """Figures of requests that together kept a server busy. Raises `RequestsFailed`."""
    check(samples)
    started = min(sample.sent_at for sample in samples)
    ended = max(sample.ended_at for sample in samples)
    firsts = [sample.first_token for sample in samples]
    gaps = [gap for sample in samples for gap in sample.gaps]
    figures = {
        TOKENS_PER_SECOND: sum(sample.num_tokens for sample in samples) / (ended - started),
        FIRST_TOKEN: median(firsts),
        FIRST_TOKEN_P95: percentile(firsts, 95),
    }
    if gaps:
        figures[BETWEEN_TOKENS] = median(gaps)
        figures[BETWEEN_TOKENS_P99] = percentile(gaps, 99)
    return figures


def percentile(values: Sequence[float], percent: int) -> float:
    """A percentile, interpolated within the range of `values`."""
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure against its baseline in the same rounds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


def ratio(own: Sequence[Figures], baseline: Sequence[Figures], name: str) -> Ratio:
    """The median of the ratios within rounds, so that a machine's drift does not shift it."""
    ratios = [one[name] / other[name] for one, other in zip(own, baseline, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """The median, and the least and the most if there are several values."""
    middle = show(median(values))
    return f"{middle} ({show(min(values))} to {show(max(values))})" if len(values) > 1 else middle


def longest_gap(times: Sequence[float], since: float = -inf, until: float = inf) -> float:
    """The longest gap between two of `times` that overlaps that time; 0 if none does."""
    gaps = (b - a for a, b in pairwise(times) if b > since and a <= until)
    return max(gaps, default=0.0)


def median_of(rounds: Iterable[Figures], name: str) -> float:
    """The median of a figure over the rounds."""
    return median(figures[name] for figures in rounds)


def shown(name: str, value: float) -> str:
    """A figure for people: milliseconds where seconds would start with a zero."""
    if name == TOKENS_PER_SECOND:
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.{1 if value >= 0.01 else 2}f} ms"
