from itertools import islice
from random import Random

import pytest

from bench.routing.host import Speeds
from bench.simulation.arrivals import Lengths, one_by_one
from bench.simulation.calibration import Calibration, calibration_of, fitted, predicted

REQUESTS = list(
    islice(one_by_one(Random(3), 2.0, lengths=Lengths(prompt=200, answer=10, most=600)), 14)
)


def test_a_step_has_a_price_and_each_sequence_one_apart_from_what_others_on_the_machine_cost() -> (
    None
):
    found = calibration_of(500.0, [0.010, 0.011, 0.015], 0.024)
    assert found.slowdown == pytest.approx((1.0, 1.1, 1.5))
    assert found.speeds.prefill == 500
    assert found.speeds.sequence == pytest.approx((0.016 - 0.010) / 3)
    assert found.speeds.step + found.speeds.sequence == pytest.approx(0.010)


def test_what_is_slower_in_the_rehearsal_is_found() -> None:
    alone = Calibration(Speeds(prefill=1000, step=0.01, sequence=0.002), (1.0, 1.1, 1.5))
    true = alone.slower(reading=1.5, generating=1.25)
    found = fitted(alone, REQUESTS, predicted(true, REQUESTS))
    assert found.speeds.prefill == pytest.approx(true.speeds.prefill, rel=0.1)
    assert found.speeds.step == pytest.approx(true.speeds.step, rel=0.1)


def test_on_a_busy_machine_everything_takes_longer() -> None:
    speeds = Speeds(prefill=1000, step=0.01, sequence=0.002)
    apart = predicted(Calibration(speeds, (1.0,)), REQUESTS)
    shared = predicted(Calibration(speeds, (1.0, 1.5, 2.0)), REQUESTS)
    assert shared.total > 1.1 * apart.total
    assert shared.first_token > apart.first_token
