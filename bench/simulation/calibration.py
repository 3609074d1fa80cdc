"""What is measured of real agents, so that simulated ones do the same.

- How fast an agent is while the others have nothing to do, and how much slower where more of them
  are busy: they share the machine's cores with each other, the balancer and the client.
- How long a request is on its way: from the client to the first step of an idle agent.
- How much slower reading and generating are when they are mixed. A rehearsal says so: requests of
  the same kind, all at once. Simulated agents are slowed down until they take as long for both.

Agents join one after the other, so that it is known how many are busy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from bench.routing.host import Speeds
from bench.routing.simulation import HostKind
from bench.simulation.arrivals import Arrival
from bench.simulation.machine import Machine
from bench.simulation.outcome import Outcome
from bench.simulation.prompts import completion_of
from bench.simulation.real_fleet import AGENTS, CONTEXT, SLOTS, RealFleet
from bench.simulation.result import Answer, Result, result_of_simulated
from bench.simulation.simulated_agent import scheduled_on
from bench.simulation.world import Policy, World

SHORT, LONG, DEEP, ANSWER = 100, 400, 900, 80
"""Tokens of the prompts and answers by which agents are measured."""

TIMES = 3
"""How often each is asked."""

FITS = 6
"""Steps in which the paces of reading and generating are found."""

LEAST_PACE, MOST_PACE = 0.25, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds until prompts were read, and seconds of a step; medians.

    Of one request alone; of one full agent with deep prompts, since attention passes over them; and
    of full agents, by how many of them were busy, from one on.
    """

    read_one: float
    step_of_one: float
    step_of_deep: float
    read_full: tuple[float, ...]
    step_of_full: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The speeds of an agent alone, how much slower it is where so many are busy, and a delay."""

    speeds: Speeds
    reading: tuple[float, ...]
    generating: tuple[float, ...]
    delay: float

    def slower(self, *, reading: float, generating: float) -> "Calibration":
        """Both take so many times as long."""
        speeds = self.speeds
        slow = Speeds(
            prefill=speeds.prefill / reading,
            step=speeds.step * generating,
            sequence=speeds.sequence * generating,
            depth=speeds.depth * generating,
        )
        return replace(self, speeds=slow)


async def measured_speeds(fleet: RealFleet) -> Measured:
    """Of a fleet without agents, which has all of them afterwards, with full caches."""
    await fleet.join()
    await _fill(fleet, 1)
    ones = [
        each
        for _ in range(TIMES)
        for each in await fleet.together(1, num_prompt=SHORT, num_answer=ANSWER)
    ]
    deep = [await fleet.together(SLOTS, num_prompt=DEEP, num_answer=ANSWER) for _ in range(TIMES)]
    read_full, step_of_full = [], []
    for num_agents in range(1, AGENTS + 1):
        if num_agents > 1:
            await fleet.join()
            await _fill(fleet, num_agents)
        read_full.append(await _seconds_of_reading(fleet, num_agents))
        step_of_full.append(await _seconds_of_step(fleet, num_agents))
    return Measured(
        read_one=median(each.first_token for each in ones),
        step_of_one=median(map(_step, ones)),
        step_of_deep=median(min(map(_step, answers)) for answers in deep),
        read_full=tuple(read_full),
        step_of_full=tuple(step_of_full),
    )


async def _fill(fleet: RealFleet, num_agents: int) -> None:
    """Their caches: attention passes over every cell that was used."""
    await fleet.together(num_agents * SLOTS, num_prompt=DEEP, num_answer=ANSWER)


async def _seconds_of_reading(fleet: RealFleet, num_agents: int) -> float:
    """Until the last of so many full agents' prompts was read."""
    num = num_agents * SLOTS
    all_times = [await fleet.together(num, num_prompt=LONG, num_answer=1) for _ in range(TIMES)]
    return median(max(each.first_token for each in answers) for answers in all_times)


async def _seconds_of_step(fleet: RealFleet, num_agents: int) -> float:
    num = num_agents * SLOTS
    steps = [
        _step(each)
        for _ in range(TIMES)
        for each in await fleet.together(num, num_prompt=SHORT, num_answer=ANSWER)
    ]
    return median(steps)


def _step(answer: Answer) -> float:
    return (answer.total - answer.first_token) / (answer.num_answer - 1)


def calibration_of(measured: Measured) -> Calibration:
    """What simulated agents are, as far as no rehearsal says more."""
    read_full, step_of_full = measured.read_full, measured.step_of_full
    prefill = (SLOTS * LONG - SHORT) / (read_full[0] - measured.read_one)
    delay = max(0.0, measured.read_one - SHORT / prefill)
    depth = max(0.0, measured.step_of_deep - step_of_full[0]) / (SLOTS * (DEEP - SHORT))
    # Of steps without any tokens before them.
    flat_one = measured.step_of_one - depth * (SHORT + ANSWER / 2)
    flat_full = step_of_full[0] - depth * SLOTS * (SHORT + ANSWER / 2)
    sequence = max(0.0, flat_full - flat_one) / (SLOTS - 1)
    step = max(0.0, flat_one - sequence)
    return Calibration(
        speeds=Speeds(prefill=prefill, step=step, sequence=sequence, depth=depth),
        reading=_slowdown([each - delay for each in read_full]),
        generating=_slowdown(step_of_full),
        delay=delay,
    )


def _slowdown(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(max(1.0, each / seconds[0]) for each in seconds)


def predicted(calibration: Calibration, arrivals: Sequence[Arrival]) -> Result:
    """What simulated agents do with these requests, in figures."""
    return result_of_simulated(simulated(calibration, arrivals))


def simulated(calibration: Calibration, arrivals: Sequence[Arrival]) -> Outcome:
    """What they do with these requests, which come from one caller."""
    kind = HostKind(slots=SLOTS, cache=SLOTS * CONTEXT, speeds=calibration.speeds)
    world = World(
        [kind] * AGENTS,
        iter(arrivals),
        num_requests=len(arrivals),
        policy=Policy(callers_apart=False),
        make_host=scheduled_on(Machine(calibration.reading, calibration.generating)),
        make_request=completion_of,
        delay=calibration.delay,
        share_a_machine=True,
    )
    return world.run()


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
