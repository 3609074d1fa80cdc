"""What is measured of real agents, so that simulated ones do the same.

- How fast an agent is while the others have nothing to do, and how much slower where more of them
  are busy: they share the machine's cores with each other, the balancer and the client. Steps of
  one sequence suffer more from others than those of many.
- How long a request is on its way: from the client to the first step of an idle agent.
- How much slower all that is under load. Two rehearsals say so, with requests of the same kind: all
  at once, where agents are full, and at half of that, where most steps are of one sequence.
  Simulated agents are slowed down until they take as long for prefill and generation.

Agents join one after the other, so that it is known how many are busy. Before anything is measured
they age, and so do simulated ones: they serve requests of the same kind until their caches are full
of what no request will ask again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from bench.routing.host import Speeds
from bench.routing.simulation import HostKind
from bench.simulation.arrivals import Arrival
from bench.simulation.machine import Machine
from bench.simulation.prompts import completion_of
from bench.simulation.real_fleet import AGENTS, CONTEXT, SLOTS, STREAMS, RealFleet
from bench.simulation.result import Answer, Result, mean_of, result_of_simulated
from bench.simulation.simulated_agent import scheduled_on
from bench.simulation.world import Policy, World

SHORT, LONG, DEEP, ANSWER = 100, 400, 900, 80
"""Tokens of the prompts and answers by which agents are measured."""

TIMES = 4
"""How often each is asked."""

FITS = 12
"""Steps in which it is found how much slower."""

LEAST_PACE, MOST_PACE = 0.25, 4.0


Ageing = Callable[[int], Sequence[Arrival]]
"""Requests by which so many agents age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds until prompts were computed, and seconds of a step; medians.

    Of a request that has next to nothing to read, and of an agent full of deep prompts, since
    attention passes over them. And by how many agents were busy, from one on: full ones that read,
    those with one sequence each, and full ones.
    """

    read_nothing: float
    step_of_deep: float
    read_full: tuple[float, ...]
    step_of_one: tuple[float, ...]
    step_of_full: tuple[float, ...]

    def slower(self, *, reading: float, one: float, full: float) -> "Measured":
        """All of it multiplied by a factor each: prefill, steps of one sequence, and of full
        agents."""
        return Measured(
            read_nothing=self.read_nothing,
            step_of_deep=self.step_of_deep * full,
            read_full=tuple(each * reading for each in self.read_full),
            step_of_one=tuple(each * one for each in self.step_of_one),
            step_of_full=tuple(each * full for each in self.step_of_full),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The speeds of an agent alone, a delay, and by kinds of steps (`machine`) how much slower they
    are where so many agents are busy.
    """

    speeds: Speeds
    slowdowns: tuple[tuple[float, ...], ...]
    delay: float


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Requests, and what came of them."""

    arrivals: Sequence[Arrival]
    fact: Result


async def measured_speeds(fleet: RealFleet, ageing: Ageing) -> Measured:
    """The speeds of a fleet that has no agents at first, and all of them afterwards, aged."""
    await _join(fleet, ageing, 1)
    read_nothing, step_of_deep = await _seconds_on_the_way(fleet), await _seconds_of_deep(fleet)
    read_full, step_of_one, step_of_full = [], [], []
    for num_agents in range(1, AGENTS + 1):
        if num_agents > 1:
            await _join(fleet, ageing, num_agents)
        read_full.append(await _seconds_of_reading(fleet, num_agents))
        step_of_one.append(await _seconds_of_step(fleet, num_agents))
        step_of_full.append(await _seconds_of_step(fleet, num_agents * SLOTS))
    return Measured(
        read_nothing=read_nothing,
        step_of_deep=step_of_deep,
        read_full=tuple(read_full),
        step_of_one=tuple(step_of_one),
        step_of_full=tuple(step_of_full),
    )


async def _join(fleet: RealFleet, ageing: Ageing, num_agents: int) -> None:
    await fleet.join()
    await fleet.served(ageing(num_agents))


async def _seconds_on_the_way(fleet: RealFleet) -> float:
    """To an idle agent and back, with a step."""
    ones = [await fleet.together(1, num_prompt=1, num_answer=1) for _ in range(TIMES)]
    return median(answer.first_token for (answer,) in ones)


async def _seconds_of_reading(fleet: RealFleet, num_agents: int) -> float:
    """Seconds until the last prompt of `num_agents` full agents was computed."""
    num = num_agents * SLOTS
    all_times = [await fleet.together(num, num_prompt=LONG, num_answer=1) for _ in range(TIMES)]
    return median(max(each.first_token for each in answers) for answers in all_times)


async def _seconds_of_step(fleet: RealFleet, num: int) -> float:
    """A step's seconds with `num` sequences, which agents have in equal parts."""
    steps = [
        _step(each)
        for _ in range(TIMES)
        for each in await fleet.together(num, num_prompt=SHORT, num_answer=ANSWER)
    ]
    return median(steps)


async def _seconds_of_deep(fleet: RealFleet) -> float:
    """A full agent's step in seconds. Its last sequence generates after all prompts are
    computed."""
    deep = [await fleet.together(SLOTS, num_prompt=DEEP, num_answer=ANSWER) for _ in range(TIMES)]
    return median(min(map(_step, answers)) for answers in deep)


def _step(answer: Answer) -> float:
    return (answer.total - answer.first_token) / (answer.num_answer - 1)


def calibration_of(measured: Measured) -> Calibration:
    """What simulated agents are that do as was measured."""
    step_of_one, step_of_full = measured.step_of_one, measured.step_of_full
    delay = max(0.0, measured.read_nothing - step_of_one[0])
    reading = [each - delay for each in measured.read_full]
    depth = max(0.0, measured.step_of_deep - step_of_full[0]) / (SLOTS * (DEEP - SHORT))
    # Of steps without any tokens before them.
    flat_one = step_of_one[0] - depth * (SHORT + ANSWER / 2)
    flat_full = step_of_full[0] - depth * SLOTS * (SHORT + ANSWER / 2)
    sequence = max(0.0, flat_full - flat_one) / (SLOTS - 1)
    step = max(0.0, flat_one - sequence)
    return Calibration(
        speeds=Speeds(prefill=SLOTS * LONG / reading[0], step=step, sequence=sequence, depth=depth),
        slowdowns=(_slowdown(reading), *_of_generating(step_of_one, step_of_full)),
        delay=delay,
    )


def _of_generating(
    step_of_one: Sequence[float], step_of_full: Sequence[float]
) -> list[tuple[float, ...]]:
    """With one sequence, two, up to a full agent: what is between them was not measured."""
    both = list(zip(step_of_one, step_of_full, strict=True))
    shares = [num / (SLOTS - 1) for num in range(SLOTS)]
    return [_slowdown([one + share * (full - one) for one, full in both]) for share in shares]


def _slowdown(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(max(1.0, each / seconds[0]) for each in seconds)


def predicted(
    calibration: Calibration, pasts: Sequence[Sequence[Arrival]], arrivals: Sequence[Arrival]
) -> Result:
    """What simulated agents do with these requests, in figures.

    Which agent has which prefix is a matter of chance, so the figures are means over several pasts:
    the requests by which agents aged.
    """
    worlds = [aged_world(calibration, past) for past in pasts]
    outcomes = [world.go_on(iter(arrivals), len(arrivals)) for world in worlds]
    return mean_of([result_of_simulated(outcome) for outcome in outcomes])


def aged_world(calibration: Calibration, past: Sequence[Arrival]) -> World:
    """Simulated agents that have served these requests, which come from one caller as others do."""
    kind = HostKind(slots=SLOTS, cache=STREAMS * CONTEXT, speeds=calibration.speeds)
    world = World(
        [kind] * AGENTS,
        iter(past),
        num_requests=len(past),
        policy=Policy(callers_apart=False),
        make_host=scheduled_on(Machine(calibration.slowdowns), streams=STREAMS),
        make_request=completion_of,
        delay=calibration.delay,
        share_a_machine=True,
    )
    world.run()
    return world


def fitted(
    measured: Measured, pasts: Sequence[Sequence[Arrival]], *, few: Rehearsal, full: Rehearsal
) -> Calibration:
    """The calibration, slowed down until prefill and generation take as long as in the rehearsals.

    In `few` agents have few sequences, in `full` as many as they can.
    """
    reading = one = most = 1.0
    for _ in range(FITS):
        calibration = calibration_of(measured.slower(reading=reading, one=one, full=most))
        of_few, of_full = (predicted(calibration, pasts, each.arrivals) for each in (few, full))
        slower = (few.fact.reading / of_few.reading) * (full.fact.reading / of_full.reading)
        reading = _bounded(reading * sqrt(slower))
        one = _bounded(one * few.fact.generating / of_few.generating)
        most = _bounded(most * full.fact.generating / of_full.generating)
    return calibration_of(measured.slower(reading=reading, one=one, full=most))


def _bounded(pace: float) -> float:
    return min(max(pace, LEAST_PACE), MOST_PACE)
