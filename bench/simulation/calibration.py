"""What is measured of real agents, so that simulated ones do the same.

- How fast one agent is alone, and how much slower when others on its machine are busy as well: they
  share its cores with each other, the balancer and the client.
- How much slower reading and generating are when they are mixed. A rehearsal says so: requests of
  the same kind, all at once. Simulated agents are slowed down until they take as long for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from bench.routing.host import Speeds
from bench.routing.simulation import HostKind
from bench.simulation.arrivals import Arrival
from bench.simulation.outcome import Outcome
from bench.simulation.real_fleet import AGENTS, CONTEXT, SLOTS, Answer, RealFleet, Result
from bench.simulation.scheduled_host import Machine
from bench.simulation.simulated_agent import scheduled_on
from bench.simulation.world import Policy, World

TIMES = 2
"""How often each is asked."""

FITS = 6
"""Steps in which the paces of reading and generating are found."""

LEAST_PACE, MOST_PACE = 0.25, 4.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """The speeds of an agent alone, and how much slower it is where so many are busy."""

    speeds: Speeds
    slowdown: tuple[float, ...]

    def slower(self, *, reading: float, generating: float) -> "Calibration":
        """Both take so many times as long."""
        speeds = self.speeds
        slow = Speeds(
            prefill=speeds.prefill / reading,
            step=speeds.step * generating,
            sequence=speeds.sequence * generating,
        )
        return replace(self, speeds=slow)


async def calibrated(fleet: RealFleet) -> Calibration:
    """Without what a rehearsal says."""
    await fleet.asked(AGENTS * SLOTS)  # warms up
    answers = {}
    # So few at once that each has an agent to itself, and then all slots.
    for num in (*range(1, AGENTS + 1), AGENTS * SLOTS):
        answers[num] = [each for _ in range(TIMES) for each in await fleet.asked(num)]
    steps = [1 / _rate(answers[num], "decode") for num in range(1, AGENTS + 1)]
    full = 1 / _rate(answers[AGENTS * SLOTS], "decode")
    return calibration_of(_rate(answers[1], "prefill"), steps, full)


def _rate(answers: Sequence[Answer], kind: str) -> float:
    return median(each.end["timings"][f"{kind}_tokens_per_second"] for each in answers)


def calibration_of(prefill: float, steps: Sequence[float], step_of_full: float) -> Calibration:
    """From the seconds of a step of one sequence where so many agents are busy, from one on.

    And from that of full agents, all of them.
    """
    alone = steps[0]
    slowdown = [max(1.0, step / alone) for step in steps]
    sequence = max(0.0, step_of_full / slowdown[-1] - alone) / (SLOTS - 1)
    speeds = Speeds(prefill=prefill, step=max(0.0, alone - sequence), sequence=sequence)
    return Calibration(speeds, tuple(slowdown))


def predicted(calibration: Calibration, arrivals: Sequence[Arrival]) -> Result:
    """What simulated agents do with these requests."""
    kind = HostKind(slots=SLOTS, cache=SLOTS * CONTEXT, speeds=calibration.speeds)
    world = World(
        [kind] * AGENTS,
        iter(arrivals),
        num_requests=len(arrivals),
        policy=Policy(),
        make_host=scheduled_on(Machine(calibration.slowdown)),
    )
    return _result(world.run())


def _result(outcome: Outcome) -> Result:
    return Result(
        throughput=outcome.num_answer / outcome.seconds,
        wait=mean(outcome.waits),
        first_token=mean(outcome.first_tokens),
        total=mean(outcome.totals),
    )


def fitted(calibration: Calibration, rehearsal: Sequence[Arrival], fact: Result) -> Calibration:
    """Slowed down until reading and generating take as long in the rehearsal as they did."""
    reading = generating = 1.0
    for _ in range(FITS):
        paper = predicted(calibration.slower(reading=reading, generating=generating), rehearsal)
        reading = _bounded(reading * fact.reading / paper.reading)
        generating = _bounded(generating * fact.generating / paper.generating)
    return calibration.slower(reading=reading, generating=generating)


def _bounded(pace: float) -> float:
    return min(max(pace, LEAST_PACE), MOST_PACE)
