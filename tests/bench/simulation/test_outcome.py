import pytest

from bench.simulation.outcome import Outcome, jain, percentile


def test_jains_index() -> None:
    assert jain([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([0.0, 0.0]) == 1.0


def test_percentiles() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(list(range(100)), 0.99) == 99


def test_who_got_nothing_counts_in_fairness() -> None:
    outcome = Outcome(asked={1: 100, 2: 100}, served={1: 100})
    assert outcome.fairness == pytest.approx(0.5)
