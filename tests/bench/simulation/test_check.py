from collections.abc import Sequence

import pytest

from bench.routing.host import Speeds
from bench.simulation.arrivals import Arrival, Lengths
from bench.simulation.calibration import Calibration, aged_world
from bench.simulation.check import (
    FIGURES,
    PLAN,
    Pair,
    Plan,
    calibration_by,
    measured_round,
    predictions,
)
from bench.simulation.prompts import completion_of
from bench.simulation.real_fleet import RealFleet
from bench.simulation.result import Answer, Result

READING, GENERATING = (1.0, 1.1, 1.5), (1.0, 1.1, 1.6)
SPEEDS, DELAY = Speeds(prefill=2000, step=0.004, sequence=0.001), 0.01
TRUE = Calibration(
    speeds=Speeds(prefill=1400, step=0.005, sequence=0.0012),
    slowdowns=(READING, GENERATING),
    delay=DELAY,
)
"""Under load agents are slower than when they are measured by themselves."""


def answer(*, first_token: float, total: float, num_answer: int) -> Answer:
    return Answer(
        wait=0.0,
        first_token=first_token,
        total=total,
        num_prompt=100,
        num_cached=0,
        num_answer=num_answer,
        reading_rate=None,
        generating_rate=None,
    )


class PaperFleet(RealFleet):
    """Agents that are simulated, and do as they are told to."""

    def __init__(self) -> None:
        self.num_agents = 0
        self._world = aged_world(TRUE, ())

    async def join(self) -> None:
        self.num_agents += 1

    async def together(self, num: int, *, num_prompt: int, num_answer: int) -> list[Answer]:
        busy = self.num_agents - 1
        each = max(1.0, num / self.num_agents)
        step = (SPEEDS.step + SPEEDS.sequence * each) * GENERATING[busy]
        read = DELAY + each * num_prompt / SPEEDS.prefill * READING[busy]
        total = read + step * (num_answer - 1)
        return [answer(first_token=read, total=total, num_answer=num_answer)] * num

    async def served(self, arrivals: Sequence[Arrival]) -> tuple[list[Answer], float]:
        outcome = self._world.go_on(iter(arrivals), len(arrivals))
        answers = [
            Answer(
                wait=wait,
                first_token=first_token,
                total=total,
                num_prompt=arrival.num_prompt,
                num_cached=arrival.num_shared,
                num_answer=arrival.num_answer,
                reading_rate=None,
                generating_rate=None,
            )
            for wait, first_token, total, arrival in zip(
                outcome.waits, outcome.first_tokens, outcome.totals, arrivals, strict=True
            )
        ]
        return answers, outcome.seconds


def result(**changed: float) -> Result:
    found = {
        "throughput": 100.0,
        "wait": 0.0,
        "first_token": 1.0,
        "median_first_token": 1.0,
        "p95_first_token": 2.0,
        "total": 3.0,
        "cached": 0.001,
    }
    return Result(**found | changed)


def test_a_ratio_is_the_predictions_to_the_fact_where_there_is_anything() -> None:
    pair = Pair("half", result(), result(p95_first_token=1.8, cached=0.002))
    assert [pair.ratio(figure) for figure in FIGURES] == [1.0, 1.0, 1.0, 0.9, 1.0, None]


def test_loads_are_shares_of_what_the_rehearsal_came_to() -> None:
    for load, (share, num) in PLAN.loads.items():
        arrivals = PLAN.requests(load, 1, 4.0)
        assert len(arrivals) == num
        if share is None:
            assert arrivals[-1].at == 0.0
        else:
            assert abs(num / arrivals[-1].at / (4.0 * share) - 1) < 0.3


def test_no_load_has_anything_in_common_with_what_is_rehearsed() -> None:
    rehearsed = {completion_of(each).prompt[:1] for each in PLAN.rehearsal(1)}  # type: ignore[index]
    asked = {completion_of(each).prompt[:1] for each in PLAN.requests("half", 1, 1.0)}  # type: ignore[index]
    assert 1 < len(rehearsed) <= 8 and 1 < len(asked) <= 8
    assert not rehearsed & asked


@pytest.mark.thorough
async def test_agents_that_are_as_they_are_taken_to_be_are_predicted_at_all_loads() -> None:
    plan = Plan(
        lengths=Lengths(prompt=100, answer=8, most=200),
        rehearsed=30,
        aged=5,
        num_pasts=2,
        loads={"half": (0.5, 30), "all at once": (None, 30)},
    )
    found = await measured_round(PaperFleet(), 2, plan)
    pairs = predictions(found, calibration_by(found, plan), plan)
    assert [pair.load for pair in pairs] == list(plan.loads)
    for pair in pairs:
        assert pair.paper.first_token == pytest.approx(pair.fact.first_token, rel=0.15)
        assert pair.paper.total == pytest.approx(pair.fact.total, rel=0.1)
