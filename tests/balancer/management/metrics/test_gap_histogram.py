from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from arriero.balancer.management.metrics.gap_histogram import GapHistogram

BOUNDS = (0.5, 1, 2.5)
DURATIONS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 2.5, 3.0]), max_size=9)


@given(st.lists(DURATIONS, max_size=4))
def test_it_says_what_a_histogram_says_that_observes_one_by_one(steps: list[list[float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    gaps = GapHistogram("gap_seconds", "Gaps.", BOUNDS)
    ours.register(gaps)
    each = Histogram("gap_seconds", "Gaps.", buckets=BOUNDS, registry=theirs)
    for step in steps:
        gaps.observe(step)
        for duration in step:
            each.observe(duration)

    assert generate_latest(ours) == generate_latest(theirs)
