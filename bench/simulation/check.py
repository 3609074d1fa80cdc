"""The prediction beside the fact: three real agents are asked what simulated ones were.

They are calibrated first (`calibration`). Then agents and simulation get the same requests at the
same times: at shares of what a rehearsal all at once came to, and all at once. Nothing that is
predicted was measured before: other requests are rehearsed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from random import Random
from statistics import median

from rich.table import Table

from bench.simulation.arrivals import Arrival, Lengths, one_by_one
from bench.simulation.calibration import (
    Calibration,
    Measured,
    Rehearsal,
    fitted,
    measured_speeds,
    predicted,
)
from bench.simulation.real_fleet import AGENTS, RealFleet, real_fleet
from bench.simulation.result import Answer, Result, result_of
from bench.store import save, wide_console

REHEARSAL, AGEING = "rehearsal", "ageing"
"""Loads that agents are calibrated by, and what they serve before anything is measured."""

DOCUMENTS, SHARED = 8, 100
"""Each prompt begins with one of so many documents, of so many tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Loads: shares of the rehearsal's throughput, and how many requests.

    A share of `None`: all at once.
    """

    lengths: Lengths = Lengths(prompt=200, answer=60, spread=0.6, most=450)  # noqa: RUF009
    rehearsed: int = 60
    aged: int = 30
    """Requests for each agent: three times what its cache holds."""
    num_pasts: int = 3
    """In how many ways the same is simulated."""
    loads: Mapping[str, tuple[float | None, int]] = field(
        default_factory=lambda: {
            "half": (0.5, 70),
            "0.7": (0.7, 80),
            "all at once": (None, 60),
        }
    )

    def ageing(self, seed: int, num_agents: int) -> list[Arrival]:
        """What so many agents serve before they are measured."""
        return self._drawn(f"{AGEING} {seed} {num_agents}", num_agents * self.aged, None)

    def pasts(self, seed: int) -> list[list[Arrival]]:
        """What simulated agents have served before: in each of these the same of other texts."""
        names = [f"{AGEING} {seed} simulated {number}" for number in range(self.num_pasts)]
        return [self._drawn(name, AGENTS * self.aged, None) for name in names]

    def rehearsal(self, seed: int, capacity: float | None = None) -> list[Arrival]:
        """What is rehearsed in a round: all at once, or at half of `capacity`."""
        if capacity is None:
            return self._drawn(f"{REHEARSAL} {seed}", self.rehearsed, None)
        return self._drawn(f"{REHEARSAL} at half {seed}", self.rehearsed, capacity / 2)

    def requests(self, load: str, seed: int, capacity: float) -> list[Arrival]:
        """The requests of a load; `capacity` is in requests a second."""
        share, num = self.loads[load]
        return self._drawn(f"{load} {seed}", num, None if share is None else share * capacity)

    def _drawn(self, name: str, num: int, rate: float | None) -> list[Arrival]:
        """Documents and texts are those of `name` alone."""
        random = Random(name)
        documents = [random.randrange(1, 10_000) for _ in range(DOCUMENTS)]
        first_session = random.randrange(1, 10_000)
        return [
            replace(
                each,
                at=each.at if rate else 0.0,
                session=first_session + each.session,
                num_prompt=SHARED + each.num_prompt,
                document=random.choice(documents),
                num_shared=SHARED,
            )
            for each in islice(one_by_one(random, rate or 1.0, lengths=self.lengths), num)
        ]


PLAN = Plan()
FIGURES = {
    "throughput": "tokens/s",
    "median_first_token": "first token, s",
    "first_token": "its mean",
    "p95_first_token": "its 95 %",
    "total": "whole answer, s",
    "cached": "cached",
}


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


@dataclass(frozen=True, slots=True)
class Served:
    """All answers to the requests of a load, and how long that took."""

    answers: Sequence[Answer]
    seconds: float

    @property
    def result(self) -> Result:
        """In figures."""
        return result_of(self.answers, self.seconds)


@dataclass(frozen=True, slots=True)
class Round:
    """What was measured: of the agents by themselves, in the rehearsals, and at each load.

    `capacity` is in requests a second: what was served of a rehearsal all at once, `full`.
    """

    seed: int
    measured: Measured
    capacity: float
    full: Served
    few: Served
    facts: Mapping[str, Served]


async def measured_round(fleet: RealFleet, seed: int, plan: Plan = PLAN) -> Round:
    """A round with real agents."""

    async def served(arrivals: Sequence[Arrival]) -> Served:
        return Served(*await fleet.served(arrivals))

    measured = await measured_speeds(fleet, partial(plan.ageing, seed))
    full = await served(plan.rehearsal(seed))
    capacity = len(full.answers) / full.seconds
    few = await served(plan.rehearsal(seed, capacity))
    facts = {load: await served(plan.requests(load, seed, capacity)) for load in plan.loads}
    return Round(seed, measured, capacity, full, few, facts)


def calibration_by(found: Round, plan: Plan = PLAN) -> Calibration:
    """The calibration of a round's agents, by what was measured before the loads."""
    return fitted(
        found.measured,
        plan.pasts(found.seed),
        few=Rehearsal(plan.rehearsal(found.seed, found.capacity), found.few.result),
        full=Rehearsal(plan.rehearsal(found.seed), found.full.result),
    )


def predictions(found: Round, calibration: Calibration, plan: Plan = PLAN) -> list[Pair]:
    """Facts, and the same on paper."""
    pasts = plan.pasts(found.seed)
    return [
        Pair(
            load,
            fact.result,
            predicted(calibration, pasts, plan.requests(load, found.seed, found.capacity)),
        )
        for load, fact in found.facts.items()
    ]


async def main(seed: int, rounds: int) -> None:
    """Prints and keeps the prediction and the fact at each load."""
    all_rounds, pairs = [], []
    for number in range(rounds):
        async with real_fleet() as fleet:
            all_rounds.append(await measured_round(fleet, seed + number))
        calibration = calibration_by(all_rounds[-1])
        print(calibration, flush=True)
        pairs += predictions(all_rounds[-1], calibration)
    show(pairs)
    found = {"rounds": list(map(asdict, all_rounds)), "pairs": list(map(asdict, pairs))}
    save("simulate_check", found)


def show(pairs: Sequence[Pair]) -> None:
    """Medians over the rounds, and the ratio of each round."""
    table = Table(title="Three real agents: measured, predicted, and their ratio in each round")
    table.add_column("load")
    for heading in FIGURES.values():
        table.add_column(heading, justify="right")
    for load in dict.fromkeys(each.load for each in pairs):
        of_load = [each for each in pairs if each.load == load]
        table.add_row(load, *(_cell(of_load, figure) for figure in FIGURES))
    wide_console().print(table)


def _cell(pairs: Sequence[Pair], figure: str) -> str:
    fact = median(getattr(each.fact, figure) for each in pairs)
    paper = median(getattr(each.paper, figure) for each in pairs)
    ratios = [each.ratio(figure) for each in pairs]
    shown = " ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
    return f"{fact:,.3g}, {paper:,.3g}: {shown}"
