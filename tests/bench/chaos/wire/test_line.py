from random import Random

import pytest

from bench.chaos.wire.line import BACKLOG, Line, Weather


def line(weather: Weather, seed: int = 1) -> Line:
    return Line(Random(seed), weather)


def test_fair_weather_takes_no_time() -> None:
    assert Line(Random(1)).arrival(5.0, 1500) == 5.0


def test_a_cut_line_carries_nothing() -> None:
    assert line(Weather(is_cut=True)).arrival(5.0, 10) is None


def test_delay() -> None:
    assert line(Weather(delay=0.25)).arrival(5.0, 10) == 5.25


def test_loss_takes_its_share_and_follows_the_seed() -> None:
    fates = [line(Weather(loss=0.2), seed=3).arrival(0.0, 10) for _ in range(2)]
    assert fates[0] == fates[1]
    lossy = line(Weather(loss=0.2))
    lost = sum(lossy.arrival(0.0, 10) is None for _ in range(1000))
    assert 150 < lost < 250


def test_a_narrow_line_takes_packets_one_after_the_other() -> None:
    narrow = line(Weather(rate=1000.0, delay=1.0))
    assert narrow.arrival(0.0, 100) == pytest.approx(1.1)
    assert narrow.arrival(0.0, 100) == pytest.approx(1.2)
    assert narrow.arrival(5.0, 100) == pytest.approx(6.1)


def test_a_narrow_line_drops_what_would_wait_too_long() -> None:
    narrow = line(Weather(rate=1000.0))
    arrivals = [narrow.arrival(0.0, 100) for _ in range(20)]
    carried = [each for each in arrivals if each is not None]
    assert 0 < len(carried) < 20
    assert max(carried) <= BACKLOG + 0.1 + 1e-9
