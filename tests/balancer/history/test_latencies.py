"""Histograms: sums are exact, percentiles near."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arriero.balancer.history.latencies import (
    FIRST,
    NUM_BUCKETS,
    RATIO,
    histogram,
    merged,
    num_counted,
    percentile,
)

durations = st.lists(st.floats(0.0005, 120))


def test_nothing_has_no_percentile() -> None:
    assert histogram([]) == ()
    assert percentile((), 0.5) is None


@given(durations)
def test_each_duration_is_counted_once(values: list[float]) -> None:
    counts = histogram(values)
    assert num_counted(counts) == len(values)
    assert list(counts[::2]) == sorted(set(counts[::2]))
    assert all(count > 0 for count in counts[1::2])


@given(st.lists(durations))
def test_parts_add_up_to_the_whole(parts: list[list[float]]) -> None:
    whole = histogram([value for part in parts for value in part])
    assert merged(histogram(part) for part in parts) == whole


@given(st.lists(st.floats(0.0005, 120), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_within_a_bucket_of_the_true_one(values: list[float], share: float) -> None:
    rank = max(1, -(-len(values) * share // 1))
    true = sorted(values)[int(rank) - 1]
    found = percentile(histogram(values), share)
    assert found is not None
    assert true / 1.26 <= found <= true * 1.26


@pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (1e9, NUM_BUCKETS - 1)])
def test_what_is_outside_counts_at_the_edges(value: float, bucket: int) -> None:
    assert histogram([value]) == (bucket, 1)


@given(st.lists(st.one_of(st.floats(0, 500), st.sampled_from([0.0005, 0.000625, 1e9]))))
@example([FIRST * RATIO**power for power in range(NUM_BUCKETS - 1)])
def test_a_bucket_holds_what_is_above_the_one_before_and_not_above_itself(
    values: list[float],
) -> None:
    counts = histogram(values)
    for bucket, count in zip(counts[::2], counts[1::2], strict=True):
        above = FIRST * RATIO ** (bucket - 1) if bucket else -1.0
        upto = FIRST * RATIO**bucket if bucket < NUM_BUCKETS - 1 else float("inf")
        assert sum(above < value <= upto for value in values) == count
