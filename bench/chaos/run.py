"""One run: rounds of load and faults, rest after each, and what the judge says of all of it."""

import asyncio
import time
from dataclasses import dataclass, field

from bench.chaos.clients.load import Load
from bench.chaos.clients.operator import Operator
from bench.chaos.footprint import Footprint, left_over
from bench.chaos.hosts import Hosts
from bench.chaos.judge import Episode, Judge
from bench.chaos.plan import Fault, Round
from bench.chaos.record import Record
from bench.chaos.strikes import World, strike

AFTER = 0.7
"""Seconds that the load goes on after all is well again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be; `record` is of the request that it befell, if one."""

    round: int
    what: str
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One round as it was."""

    round: Round
    episodes: list[Episode]
    records: list[Record]
    findings: list[Finding]
    is_last: bool


@dataclass(slots=True)
class Run:
    """The daemons, the load and the judge of a run."""

    world: World
    load: Load
    judge: Judge
    operator: Operator
    before: dict[str, Footprint] = field(default_factory=dict)

    @property
    def hosts(self) -> Hosts:
        return self.world.hosts

    async def round(self, planned: Round) -> RoundResult:
        """Load and faults, then rest. It is the last if not all became well again."""
        self.load.records = []
        stop = asyncio.Event()
        loading = asyncio.gather(self.load.run(planned.seed, stop), self.operator.run(stop))
        struck = await asyncio.gather(*map(self._strike, planned.faults), return_exceptions=True)
        episodes = [each for each in struck if isinstance(each, Episode)]
        unwell = [each for each in struck if isinstance(each, BaseException)]
        await asyncio.sleep(AFTER)
        stop.set()
        await loading
        records = self.load.records
        findings = [
            Finding(planned.number, what, record)
            for record in records
            for what in self.judge.findings(record, episodes)
        ]
        left = [*map(repr, unwell)] if unwell else await self._rest()
        findings += [Finding(planned.number, what) for what in left]
        return RoundResult(planned, episodes, records, findings, is_last=bool(unwell))

    async def _strike(self, fault: Fault) -> Episode:
        await asyncio.sleep(fault.at)
        begin = time.monotonic()
        await strike(self.world, fault)
        return Episode(fault.kind, begin, time.monotonic())

    async def _rest(self) -> list[str]:
        """What is still there when no request runs any more."""
        found = [f"at rest, {each}" for each in await self.hosts.unrest()]
        found += await self.operator.findings()
        present = self.hosts.footprints()
        for name, now in present.items():
            if name in self.before:
                found += [f"{name}: {what}" for what in left_over(self.before[name], now)]
        self.before = {name: self.before.get(name, now) for name, now in present.items()}
        return found
