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
    Measured,
    Rehearsal,
    calibration_of,
    fitted,
    predicted,
)
from bench.simulation.real_fleet import SLOTS

LENGTHS = Lengths(prompt=100, answer=40, most=300)
REQUESTS = list(islice(one_by_one(Random(3), 2.0, lengths=LENGTHS), 14))
PASTS = [
    [replace(each, session=first + each.session) for each in REQUESTS[:5]] for first in (100, 200)
]
CROWD = [replace(each, at=0.0) for each in islice(one_by_one(Random(4), 2.0, lengths=LENGTHS), 18)]
READING, ONE, FULL = (1.0, 1.1, 1.5), (1.0, 1.3, 2.0), (1.0, 1.2, 1.6)
SPEEDS = Speeds(prefill=1000, step=0.01, sequence=0.002, depth=2e-6)
DELAY = 0.01


def measured() -> Measured:
    """Of such agents by themselves."""
    read = SLOTS * LONG / SPEEDS.prefill
    before = SHORT + ANSWER / 2
    one = SPEEDS.step + SPEEDS.sequence + before * SPEEDS.depth
    full = SPEEDS.step + SLOTS * (SPEEDS.sequence + before * SPEEDS.depth)
    return Measured(
        read_nothing=DELAY + one,
        step_of_deep=full + SLOTS * (DEEP - SHORT) * SPEEDS.depth,
        read_full=tuple(DELAY + read * slower for slower in READING),
        step_of_one=tuple(one * slower for slower in ONE),
        step_of_full=tuple(full * slower for slower in FULL),
    )


ALONE = calibration_of(measured())


def test_what_was_measured_is_what_such_an_agent_does() -> None:
    assert ALONE.speeds.prefill == pytest.approx(1000)
    assert ALONE.speeds.step == pytest.approx(0.01)
    assert ALONE.speeds.sequence == pytest.approx(0.002)
    assert ALONE.speeds.depth == pytest.approx(2e-6)
    assert ALONE.delay == pytest.approx(DELAY)
    reading, *generating = ALONE.slowdowns
    assert reading == pytest.approx(READING)
    assert generating[0] == pytest.approx(ONE)
    assert generating[-1] == pytest.approx(FULL)
    last = [each[-1] for each in generating]
    assert last == sorted(last, reverse=True)


@pytest.mark.thorough
def test_what_is_slower_in_the_rehearsals_is_found() -> None:
    true = calibration_of(measured().slower(reading=1.5, one=1.4, full=1.2))
    found = fitted(
        measured(),
        PASTS[:1],
        few=Rehearsal(REQUESTS, predicted(true, PASTS[:1], REQUESTS)),
        full=Rehearsal(CROWD, predicted(true, PASTS[:1], CROWD)),
    )
    assert found.speeds.prefill == pytest.approx(true.speeds.prefill, rel=0.05)
    assert found.speeds.step == pytest.approx(true.speeds.step, rel=0.1)
    assert found.speeds.sequence == pytest.approx(true.speeds.sequence, rel=0.2)


def test_on_a_busy_machine_everything_takes_longer() -> None:
    shared = predicted(ALONE, PASTS, REQUESTS)
    apart = predicted(replace(ALONE, slowdowns=((1.0,),)), PASTS, REQUESTS)
    assert shared.total > 1.1 * apart.total
    assert shared.first_token > apart.first_token


def test_what_agents_served_before_fills_their_caches() -> None:
    fresh, again = predicted(ALONE, PASTS, REQUESTS), predicted(ALONE, [REQUESTS], REQUESTS)
    assert again.cached > fresh.cached + 0.1
