"""Tallies become sums, and sums add up."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arriero.balancer.history import sums as sums_module
from arriero.balancer.history.sums import (
    FIRST,
    MAX_DURATIONS,
    NUM_BUCKETS,
    RATIO,
    StepTally,
    Sums,
    add,
    histogram,
    merged,
    num_counted,
    percentile,
)
from tests.balancer.history.builders import ending


def test_a_tally_counts_what_happened() -> None:
    tally = StepTally()
    tally.tokens(3)
    tally.tokens(2)
    tally.first_token(0.5)
    tally.between_tokens((0.01, 0.02))
    tally.between_tokens((0.01,))
    tally.ended(ending("a"))
    tally.ended(ending("b", "engine_failed"))
    tally.ended(ending("c"))
    assert tally.sums() == Sums(
        completion_tokens=5,
        prompt_tokens=30,
        cached_tokens=12,
        ended={"stop": 2, "engine_failed": 1},
        first_token=histogram([0.5]),
        between_tokens=histogram([0.01, 0.01, 0.02]),
    )


def test_durations_are_held_one_by_one_up_to_a_limit() -> None:
    tally = StepTally()
    frame = (0.01,) * (MAX_DURATIONS // 4)
    for _ in range(9):
        tally.between_tokens(frame)
        assert sum(map(len, tally._gaps)) <= MAX_DURATIONS
    assert tally.sums().between_tokens == histogram(frame * 9)


def test_sums_add_up() -> None:
    one = Sums(completion_tokens=1, prompt_tokens=2, ended={"stop": 1}, first_token=(3, 1))
    two = Sums(completion_tokens=4, cached_tokens=1, ended={"stop": 1, "length": 2})
    assert add([one, two]) == Sums(
        completion_tokens=5,
        prompt_tokens=2,
        cached_tokens=1,
        ended={"stop": 2, "length": 2},
        first_token=(3, 1),
    )
    assert add([one]) is one
    assert sums_module.add([]) == Sums(ended={})


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
