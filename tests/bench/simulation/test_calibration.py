from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from bench.routing.host import Speeds
from bench.simulation.arrivals import Lengths, one_by_one
from bench.simulation.calibration import (
    ANSWER,
    DEEP,
    LONG,
    SHORT,
    Calibration,
    Measured,
    calibration_of,
    fitted,
    predicted,
)
from bench.simulation.real_fleet import SLOTS

REQUESTS = list(
    islice(one_by_one(Random(3), 2.0, lengths=Lengths(prompt=200, answer=10, most=600)), 14)
)
ALONE = Calibration(
    speeds=Speeds(prefill=1000, step=0.01, sequence=0.002, depth=2e-6),
    reading=(1.0, 1.1, 1.5),
    generating=(1.0, 1.2, 1.6),
    delay=0.01,
)


def test_what_was_measured_is_what_such_an_agent_does() -> None:
    speeds = ALONE.speeds
    read = SLOTS * LONG / speeds.prefill
    before = SHORT + ANSWER / 2
    step = speeds.step + SLOTS * (speeds.sequence + before * speeds.depth)
    measured = Measured(
        read_one=ALONE.delay + SHORT / speeds.prefill,
        step_of_one=speeds.step + speeds.sequence + before * speeds.depth,
        step_of_deep=step + SLOTS * (DEEP - SHORT) * speeds.depth,
        read_full=tuple(ALONE.delay + read * slower for slower in ALONE.reading),
        step_of_full=tuple(step * slower for slower in ALONE.generating),
    )
    found = calibration_of(measured)
    assert found.speeds.prefill == pytest.approx(1000)
    assert found.speeds.step == pytest.approx(0.01)
    assert found.speeds.sequence == pytest.approx(0.002)
    assert found.speeds.depth == pytest.approx(2e-6)
    assert found.reading == pytest.approx(ALONE.reading)
    assert found.generating == pytest.approx(ALONE.generating)
    assert found.delay == pytest.approx(0.01)


def test_what_is_slower_in_the_rehearsal_is_found() -> None:
    true = ALONE.slower(reading=1.5, generating=1.25)
    found = fitted(ALONE, REQUESTS, predicted(true, REQUESTS))
    assert found.speeds.prefill == pytest.approx(true.speeds.prefill, rel=0.1)
    assert found.speeds.step == pytest.approx(true.speeds.step, rel=0.1)


def test_on_a_busy_machine_everything_takes_longer() -> None:
    shared = predicted(ALONE, REQUESTS)
    apart = predicted(replace(ALONE, reading=(1.0,), generating=(1.0,)), REQUESTS)
    assert shared.total > 1.1 * apart.total
    assert shared.first_token > apart.first_token
