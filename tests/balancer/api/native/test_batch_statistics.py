import pytest

from arriero.balancer.api.native.batch_statistics import batch_statistics
from arriero.shared.errors import QueueFull
from arriero.shared.inference import Done, Failed, Timings, Usage


def done(
    slot: float,
    first: float | None,
    end: float,
    *,
    prompt: int = 10,
    cached: int = 0,
    completion: int = 0,
) -> Done:
    """One that had its slot, its first token and its end so many seconds after it came."""
    return Done(
        "stop",
        Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion),
        Timings(
            queue_ms=slot * 1000,
            first_token_ms=None if first is None else first * 1000,
            total_ms=end * 1000,
        ),
        "agent",
    )


def test_times_in_which_several_read_or_generate_count_once() -> None:
    ends = [
        done(0, 1, 5, prompt=100, cached=20, completion=40),
        done(0, 2, 4, prompt=60, completion=20),  # generates while the first one does
        done(5, 6, 10, prompt=60, completion=40),
    ]
    assert batch_statistics(ends, 12.5) == {
        "requests": 3,
        "failed": 0,
        "prompt_tokens": 220,
        "cached_tokens": 20,
        "completion_tokens": 100,
        "total_ms": 12500.0,
        "tokens_per_second": 8.0,
        "prefill_tokens_per_second": pytest.approx(200 / 3),
        "decode_tokens_per_second": pytest.approx(100 / 8),
        "average_running": pytest.approx(14 / 10),
    }


def test_a_time_in_which_nobody_ran_counts_for_nothing() -> None:
    ends = [done(0, 1, 2, completion=10), done(8, 9, 10, completion=10)]
    statistics = batch_statistics(ends, 10.0)
    assert statistics["average_running"] == 1.0
    assert statistics["decode_tokens_per_second"] == 10.0
    assert statistics["tokens_per_second"] == 2.0


def test_those_that_failed_are_a_number() -> None:
    full = Failed(QueueFull("full"))
    statistics = batch_statistics([full, done(0, None, 1), full], 2.0)
    assert (statistics["requests"], statistics["failed"]) == (3, 2)
    assert statistics["decode_tokens_per_second"] is None
    assert statistics["prefill_tokens_per_second"] is None
    assert batch_statistics([full], 0.0)["average_running"] is None
