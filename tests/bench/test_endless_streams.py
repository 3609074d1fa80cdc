from bench.endless_streams import Watched, seen


def test_the_longest_gap_that_overlaps_the_time() -> None:
    streams = [(1.0, 2.0, 6.0, 9.0), (1.0, 2.5, 3.0, 7.5, 20.0)]
    assert seen(streams, since=2.2, until=7.0) == Watched(gap=4.5, seconds=4.8, num_tokens=1)


def test_a_gap_that_ends_later_counts() -> None:
    assert seen([(0.0, 1.0, 5.0)], since=0.5, until=2.0).gap == 4.0
    assert seen([(0.0, 1.0, 5.0)], since=0.5, until=0.9).gap == 1.0
