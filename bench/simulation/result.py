"""What came of many requests, in the same figures whether they were asked or simulated."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import mean, median

from bench.simulation.outcome import Outcome, percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Generated tokens a second over all; seconds from asking; the cached part of the prompts.

    To a slot, to the first token and to the end; means, where they are called nothing else.
    """

    throughput: float
    wait: float
    first_token: float
    median_first_token: float
    p95_first_token: float
    total: float
    cached: float

    @property
    def reading(self) -> float:
        """Mean seconds from the slot to the first token."""
        return self.first_token - self.wait

    @property
    def generating(self) -> float:
        """Mean seconds from the first token to the end."""
        return self.total - self.first_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a client saw: seconds from asking to a slot, to the first token and to the end.

    Of `num_prompt` tokens `num_cached` were cached. Rates are the engine's own, in tokens a second;
    `None` where it had no steps of that kind.
    """

    wait: float
    first_token: float
    total: float
    num_prompt: int
    num_cached: int
    num_answer: int
    reading_rate: float | None
    generating_rate: float | None


def result_of(answers: Sequence[Answer], seconds: float) -> Result:
    """The result of requests that took `seconds` from the first beginning to the last end."""
    first_tokens = [each.first_token for each in answers]
    return Result(
        throughput=sum(each.num_answer for each in answers) / seconds,
        wait=mean(each.wait for each in answers),
        first_token=mean(first_tokens),
        median_first_token=median(first_tokens),
        p95_first_token=percentile(first_tokens, 0.95),
        total=mean(each.total for each in answers),
        cached=sum(each.num_cached for each in answers) / sum(each.num_prompt for each in answers),
    )


def mean_of(results: Sequence[Result]) -> Result:
    """The mean of each figure, over several courses that one load may take."""
    names = [each.name for each in fields(Result)]
    return Result(**{name: mean(getattr(each, name) for each in results) for name in names})


def result_of_simulated(outcome: Outcome) -> Result:
    """The result of simulated requests."""
    return Result(
        throughput=outcome.num_answer / outcome.seconds,
        wait=mean(outcome.waits),
        first_token=mean(outcome.first_tokens),
        median_first_token=median(outcome.first_tokens),
        p95_first_token=percentile(outcome.first_tokens, 0.95),
        total=mean(outcome.totals),
        cached=outcome.cached_share,
    )
