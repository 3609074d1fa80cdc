import time

from bench.balancer.stamps import FIRST_MARK, MARK, seconds_since, stamp, stamps


def test_the_stamp_says_when_it_was_made() -> None:
    before = time.monotonic()
    ((end, sent),) = stamps(stamp())
    after = time.monotonic()

    assert end == len(stamp())
    assert 0 <= seconds_since(sent, after) <= after - before + 1e-6


def test_the_clock_of_stamps_may_wrap() -> None:
    assert seconds_since(10**10 - 1, (10**10 + 2) / 1e6) == 3e-6


def test_marks_count_tokens_and_events() -> None:
    merged = b'{"text":"%b%b"} {"text":"%b"}' % (stamp(), stamp(), stamp())

    assert merged.count(MARK) == 3
    assert merged.count(FIRST_MARK) == 2
    assert len(stamps(merged)) == 3
