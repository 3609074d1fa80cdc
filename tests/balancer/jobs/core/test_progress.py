"""How fast a batch goes."""

import pytest

from arriero.balancer.jobs.core.progress import MAX_SAMPLES, WINDOW, Progress


def test_nobody_knows_at_first() -> None:
    progress = Progress(100.0)
    assert progress.rate(100.0) is None
    assert progress.rate(130.0) is None


def test_a_steady_pace() -> None:
    progress = Progress(0.0)
    for number in range(1, 1001):
        progress.ended(number / 10)
    assert progress.rate(100.0) == pytest.approx(10.0, rel=0.05)


def test_what_was_long_ago_does_not_count() -> None:
    progress = Progress(0.0)
    for number in range(1000):
        progress.ended(number / 1000)
    for number in range(int(2 * WINDOW)):
        progress.ended(1.0 + number)
    assert progress.rate(1.0 + 2 * WINDOW) == pytest.approx(1.0, rel=0.1)


def test_memory_is_bounded() -> None:
    progress = Progress(0.0)
    for number in range(10_000):
        progress.ended(float(number))
    assert len(progress._samples) <= MAX_SAMPLES
    assert progress.num_ended == 10_000
