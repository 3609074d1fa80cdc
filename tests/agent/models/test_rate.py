"""How fast a download is."""

from arriero.agent.models.rate import RateMeter
from arriero.shared.models.assignments import Download


def test_a_rate_and_the_time_left_follow_from_two_counts() -> None:
    meter = RateMeter()
    first = meter.measure(10.0, "m", 100, 1000)
    second = meter.measure(12.0, "m", 300, 1000)

    assert first == Download(file="m", bytes=100, total=1000)
    assert (second.bytes_per_second, second.seconds_left) == (100.0, 7.0)


def test_old_counts_do_not_matter() -> None:
    meter = RateMeter()
    for second in range(100):
        meter.measure(float(second), "m", 10 * second, None)
    slow = [meter.measure(100.0 + second, "m", 990 + second, None) for second in range(20)]
    assert slow[-1].bytes_per_second == 1.0


def test_a_download_that_stands_still_has_no_time_left_to_tell() -> None:
    meter = RateMeter()
    meter.measure(0.0, "m", 100, 1000)
    still = meter.measure(5.0, "m", 100, 1000)
    assert (still.bytes_per_second, still.seconds_left) == (0.0, None)


def test_a_download_that_begins_anew_is_measured_anew() -> None:
    meter = RateMeter()
    meter.measure(0.0, "m", 500, 1000)
    assert meter.measure(1.0, "m", 10, 1000).bytes_per_second is None
    assert meter.measure(2.0, "m", 20, 1000).bytes_per_second == 10.0
