"""The plan: which faults strike whom and when, all of it from one seed.

A plan is rounds without end. In a round the load runs, one or two faults strike, and afterwards
everything has to come to rest. Each kind comes once before any comes again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from bench.chaos.faults import Kind

EARLIEST, LATEST = 0.3, 1.5
"""When a fault may strike, in seconds after the load began."""

SHARE_OF_PAIRS = 0.3
"""The share of rounds that get a second fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` seconds into the round, for `lasts`; `agent` is whom it strikes if it strikes one.

    `amount`, from 0 to 1, is how much of it where there is a much.
    """

    kind: Kind
    at: float
    lasts: float
    agent: int
    amount: float

    def __str__(self) -> str:
        whom = f" agent-{self.agent + 1}" if self.kind.target == "agent" else ""
        lasting = f" for {self.lasts:.1f} s" if self.lasts else ""
        return f"{self.kind.name}{whom}{lasting}"


@dataclass(frozen=True, slots=True)
class Round:
    """One round; `seed` is for the load."""

    number: int
    faults: tuple[Fault, ...]
    seed: int


def rounds(seed: int, kinds: Sequence[Kind], num_agents: int) -> Iterator[Round]:
    """The plan of `seed`. There has to be at least one kind."""
    chance = Random(seed)
    turns = _turns(chance, kinds)
    number = 0
    while True:
        number += 1
        faults = [_fault(chance, next(turns), num_agents)]
        if chance.random() < SHARE_OF_PAIRS:
            second = _fault(chance, chance.choice(kinds), num_agents)
            if are_apart(faults[0], second):
                faults.append(second)
        yield Round(number, tuple(faults), chance.randrange(2**32))


def _turns(chance: Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    while True:
        yield from chance.sample(kinds, len(kinds))


def _fault(chance: Random, kind: Kind, num_agents: int) -> Fault:
    return Fault(
        kind,
        at=round(chance.uniform(EARLIEST, LATEST), 2),
        lasts=round(chance.uniform(kind.shortest, kind.longest), 2),
        agent=chance.randrange(num_agents),
        amount=round(chance.random(), 3),
    )


def are_apart(one: Fault, other: Fault) -> bool:
    """Whether both may strike in one round: they strike different things."""
    if one.kind.target == other.kind.target == "agent":
        return one.agent != other.agent
    agents = {"agent", "agents"}
    if one.kind.target in agents and other.kind.target in agents:
        return False
    return one.kind.target != other.kind.target
