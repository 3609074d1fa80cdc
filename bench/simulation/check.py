"""The prediction beside the fact: three real agents are asked what simulated ones were.

They are calibrated first (`calibration`). Then agents and simulation get the same requests at the
same times: at shares of what the rehearsal came to, and all at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from random import Random
from statistics import median

from rich.table import Table

from bench.simulation.arrivals import Arrival, Lengths, one_by_one
from bench.simulation.calibration import Calibration, calibrated, fitted, predicted
from bench.simulation.real_fleet import RealFleet, Result, real_fleet
from bench.store import save, wide_console

REHEARSAL = 1000
"""Added to a seed, so that what is rehearsed is not what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`rehearsed` requests, and loads: shares of the rehearsal's throughput, and how many requests.

    A share of `None`: all at once.
    """

    lengths: Lengths = Lengths(prompt=300, answer=120, spread=0.6, most=900)  # noqa: RUF009
    rehearsed: int = 100
    loads: Mapping[str, tuple[float | None, int]] = field(
        default_factory=lambda: {
            "half": (0.5, 150),
            "0.7": (0.7, 150),
            "all at once": (None, 100),
        }
    )

    def rehearsal(self, seed: int) -> list[Arrival]:
        """What is rehearsed in a round."""
        return at_once(self._drawn(REHEARSAL + seed, self.rehearsed, 1.0))

    def requests(self, load: str, seed: int, capacity: float) -> list[Arrival]:
        """Of a load; `capacity` is in requests a second."""
        share, num = self.loads[load]
        seed = seed * len(self.loads) + list(self.loads).index(load)
        if share is None:
            return at_once(self._drawn(seed, num, 1.0))
        return self._drawn(seed, num, share * capacity)

    def _drawn(self, seed: int, num: int, rate: float) -> list[Arrival]:
        return list(islice(one_by_one(Random(seed), rate, lengths=self.lengths), num))


PLAN = Plan()
FIGURES = tuple(each.name for each in fields(Result))


@dataclass(frozen=True, slots=True)
class Pair:
    """What was measured at a load, and what was predicted."""

    load: str
    fact: Result
    paper: Result

    def ratio(self, figure: str) -> float | None:
        """The prediction's to the fact; `None` where both are next to nothing."""
        fact, paper = getattr(self.fact, figure), getattr(self.paper, figure)
        return None if max(fact, paper) < 0.01 else paper / max(fact, 1e-3)


def at_once(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The same, without pauses."""
    return [replace(each, at=0.0) for each in arrivals]


@dataclass(frozen=True, slots=True)
class Round:
    """What was measured: of the agents by themselves, in the rehearsal, and at each load."""

    plan: Plan
    seed: int
    calibration: Calibration
    rehearsal: Result
    facts: Mapping[str, Result]

    @property
    def capacity(self) -> float:
        """Requests a second in the rehearsal."""
        return capacity_of(self.rehearsal, self.plan.rehearsal(self.seed))


def capacity_of(fact: Result, arrivals: Sequence[Arrival]) -> float:
    """Requests a second."""
    return fact.throughput / sum(each.num_answer for each in arrivals) * len(arrivals)


async def measured(fleet: RealFleet, seed: int, plan: Plan = PLAN) -> Round:
    """A round with real agents."""
    calibration = await calibrated(fleet)
    rehearsed = plan.rehearsal(seed)
    rehearsal = await fleet.measured(rehearsed)
    capacity = capacity_of(rehearsal, rehearsed)
    facts = {load: await fleet.measured(plan.requests(load, seed, capacity)) for load in plan.loads}
    return Round(plan, seed, calibration, rehearsal, facts)


def predictions(measured: Round) -> list[Pair]:
    """The same on paper, with agents that are calibrated by the rehearsal."""
    plan, seed = measured.plan, measured.seed
    calibration = fitted(measured.calibration, plan.rehearsal(seed), measured.rehearsal)
    return [
        Pair(load, fact, predicted(calibration, plan.requests(load, seed, measured.capacity)))
        for load, fact in measured.facts.items()
    ]


async def main(seed: int, rounds: int) -> None:
    """Prints and keeps the prediction and the fact at each load."""
    async with real_fleet() as fleet:
        all_rounds = [await measured(fleet, seed + number) for number in range(rounds)]
    pairs = [pair for each in all_rounds for pair in predictions(each)]
    show(pairs)
    kept = {"rounds": list(map(repr, all_rounds)), "pairs": list(map(repr, pairs))}
    print(*kept["rounds"], sep="\n")
    save("simulate_check", kept)


def show(pairs: Sequence[Pair]) -> None:
    """Medians over the rounds, and the ratio of each round."""
    table = Table(title="Three real agents: measured, predicted, and their ratio in each round")
    for heading in ("load", "tokens/s", "wait, s", "first token, s", "whole answer, s"):
        table.add_column(heading, justify="left" if heading == "load" else "right")
    for load in dict.fromkeys(each.load for each in pairs):
        of_load = [each for each in pairs if each.load == load]
        table.add_row(load, *(_cell(of_load, figure) for figure in FIGURES))
    wide_console().print(table)


def _cell(pairs: Sequence[Pair], figure: str) -> str:
    fact = median(getattr(each.fact, figure) for each in pairs)
    paper = median(getattr(each.paper, figure) for each in pairs)
    ratios = [each.ratio(figure) for each in pairs]
    told = " ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
    return f"{fact:,.3g}, {paper:,.3g}: {told}"
