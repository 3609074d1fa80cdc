"""Statistics of a batch whose requests have all ended.

All requests of a batch are accepted at once, so their times count from one moment. A request reads
its prompt from getting a slot to its first token, and generates from then to its end. Several
requests do so at once. A rate is therefore the tokens of all requests, divided by the time in
which at least one request was reading or generating.
"""

from collections.abc import Iterable, Sequence

from typing_extensions import TypedDict

from ....shared.inference import Count, Done, EndEvent, rate_of

Span = tuple[float, float]
"""Start and end, in milliseconds since the batch was accepted."""


class BatchStatistics(TypedDict):
    """Statistics of a batch. A failed request is only counted.

    `total_ms` is the time from the beginning to the end of the batch, and `tokens_per_second` is
    the rate over this time. `prefill_tokens_per_second` counts computed prompt tokens over the time
    in which any request read its prompt. `decode_tokens_per_second` counts generated tokens over
    the time in which any request generated. `average_running` is the average number of requests
    with a slot, over the time in which any had one. Rates are null if there was no such time.
    """

    requests: Count
    failed: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    total_ms: float
    tokens_per_second: float | None
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    average_running: float | None


def batch_statistics(ends: Iterable[EndEvent], seconds: float) -> BatchStatistics:
    """Return the statistics of a batch that took `seconds`."""
    ends = list(ends)
    done = [end for end in ends if isinstance(end, Done)]
    usages = [end.usage for end in done]
    completion_tokens = sum(usage.completion_tokens for usage in usages)
    prompt_tokens = sum(usage.prompt_tokens for usage in usages)
    cached_tokens = sum(usage.cached_tokens for usage in usages)
    running = [(end.timings.queue_ms, end.timings.total_ms) for end in done]
    busy = _covered(running)
    return {
        "requests": len(ends),
        "failed": len(ends) - len(done),
        "prompt_tokens": prompt_tokens,
        "cached_tokens": cached_tokens,
        "completion_tokens": completion_tokens,
        "total_ms": seconds * 1000,
        "tokens_per_second": rate_of(completion_tokens, seconds),
        "prefill_tokens_per_second": rate_of(
            prompt_tokens - cached_tokens, _covered(_reading(done))
        ),
        "decode_tokens_per_second": rate_of(completion_tokens, _covered(_generating(done))),
        "average_running": rate_of(sum(end - start for start, end in running) / 1000, busy),
    }


def _reading(done: Iterable[Done]) -> list[Span]:
    times = [end.timings for end in done]
    return [(one.queue_ms, one.first_token_ms) for one in times if one.first_token_ms is not None]


def _generating(done: Iterable[Done]) -> list[Span]:
    times = [end.timings for end in done]
    return [(one.first_token_ms, one.total_ms) for one in times if one.first_token_ms is not None]


def _covered(spans: Sequence[Span]) -> float:
    """Return the seconds that at least one of `spans` covers."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered / 1000
