from collections.abc import Sequence

import pytest

from bench.routing.host import Speeds
from bench.simulation.arrivals import Arrival, Lengths
from bench.simulation.calibration import Calibration, predicted
from bench.simulation.check import FIGURES, PLAN, Pair, Plan, measured, predictions
from bench.simulation.real_fleet import AGENTS, SLOTS, Answer, RealFleet, Result, prompt_of

ALONE = Calibration(Speeds(prefill=2000, step=0.004, sequence=0.001), (1.0, 1.1, 1.5))
TRUE = ALONE.slower(reading=1.4, generating=1.2)
"""Of agents that are slower when reading and generating are mixed."""


class PaperFleet(RealFleet):
    """Agents that are simulated, and do as they are told to."""

    def __init__(self) -> None:
        pass

    async def asked(self, num: int) -> list[Answer]:
        speeds, busy = ALONE.speeds, min(num, AGENTS)
        step = speeds.step + speeds.sequence * (SLOTS if num > AGENTS else 1)
        rates = {
            "prefill_tokens_per_second": speeds.prefill,
            "decode_tokens_per_second": 1 / (step * ALONE.slowdown[busy - 1]),
        }
        return [Answer(1.0, 2.0, {"timings": rates})] * num

    async def measured(self, arrivals: Sequence[Arrival]) -> Result:
        return predicted(TRUE, arrivals)


def result(**changed: float) -> Result:
    found = {"throughput": 100.0, "wait": 0.001, "first_token": 1.0, "total": 2.0} | changed
    return Result(**found)


def test_a_ratio_is_the_predictions_to_the_fact_where_there_is_anything() -> None:
    pair = Pair("half", result(), result(first_token=0.9, wait=0.002))
    assert [pair.ratio(figure) for figure in FIGURES] == [1.0, None, 0.9, 1.0]


def test_loads_are_shares_of_what_the_rehearsal_came_to() -> None:
    for load, (share, num) in PLAN.loads.items():
        arrivals = PLAN.requests(load, 1, 4.0)
        assert len(arrivals) == num
        if share is None:
            assert arrivals[-1].at == 0.0
        else:
            assert abs(num / arrivals[-1].at / (4.0 * share) - 1) < 0.3


def test_prompts_have_nothing_in_common() -> None:
    first, second = PLAN.requests("half", 1, 1.0)[:2]
    assert len(prompt_of(first)) == first.num_prompt
    assert prompt_of(first)[0] != prompt_of(second)[0]


async def test_agents_that_are_as_they_are_taken_to_be_are_predicted_at_all_loads() -> None:
    plan = Plan(
        lengths=Lengths(prompt=100, answer=8, most=200),
        rehearsed=15,
        loads={"half": (0.5, 12), "all at once": (None, 12)},
    )
    pairs = predictions(await measured(PaperFleet(), 1, plan))
    assert [pair.load for pair in pairs] == list(plan.loads)
    for pair in pairs:
        assert pair.paper.first_token == pytest.approx(pair.fact.first_token, rel=0.15)
        assert pair.paper.total == pytest.approx(pair.fact.total, rel=0.1)
