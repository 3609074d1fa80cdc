"""How the queue shares slots, and how long classes wait: `python -m bench.fairness`.

The balancer's own dispatch in virtual time, without sockets: one caller sends a batch at once, and
others send one request after another. The baseline is the same dispatch when it treats all requests
as those of one caller and one class, which is first come, first served. Preemption of running batch
requests is left out.
"""

import argparse
import heapq
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from rich.table import Table

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.requests.dispatch.dispatch import AssignSlot, Dispatch
from arriero.balancer.fleet.requests.eligibility import Offer
from arriero.balancer.fleet.requests.request import Request
from arriero.shared.inference import PRIORITY_NUMBERS, GenerateRequest, PriorityClass, RequestId
from bench.arguments import at_least
from bench.store import wide_console

TOKENS_PER_SECOND = 50.0
"""The speed of each slot."""

FEWEST_TOKENS, MOST_TOKENS = 50, 150
BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A batch of so many requests, and beside it callers that send one after another."""

    entries: int = 256
    callers: int = 7
    slots: int = 4
    pause: float = 0.0
    """Seconds between a single caller's answer and its next request; its first comes within it."""
    batch: PriorityClass = "default"
    single: PriorityClass = "default"
    seconds: float = 60.0
    """The batch has not ended by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Shares are tokens by caller; waits are of single requests, in seconds."""

    shares: dict[str, int]
    waits: tuple[float, ...]

    @property
    def jain(self) -> float:
        """Jain's index of the shares: 1 if all are equal, 1/n if one has all."""
        return jain(self.shares.values())

    @property
    def p95(self) -> float:
        """The wait that 95 of 100 single requests do not exceed."""
        return sorted(self.waits)[int(0.95 * (len(self.waits) - 1))]


@dataclass(frozen=True, slots=True)
class _Job:
    caller: str
    tokens: int
    arrived: float


class _Run:
    """One run; with `is_fair` false all callers are one, of one class."""

    def __init__(self, load: Load, seed: int, *, is_fair: bool) -> None:
        self._load = load
        self._random = random.Random(seed)
        self._is_fair = is_fair
        self._dispatch = Dispatch(max_buffered=1_000_000)
        self._dispatch.agent_joined(LinkId(1), Offer(model="m", slots=load.slots))
        self._jobs: dict[Request, _Job] = {}
        self._events: list[tuple[float, int, str, Request | None]] = []
        """When, a number for the order, whose next request, and which one ends, if one does."""
        self._numbers = count()
        self._shares: Counter[str] = Counter()
        self._waits: list[float] = []

    def result(self) -> Result:
        names = [f"single {number}" for number in range(1, self._load.callers + 1)]
        for _ in range(self._load.entries):
            self._schedule(0.0, BATCH)
        for name in names:
            self._schedule(self._random.uniform(0.0, self._load.pause), name)
        while self._events and self._events[0][0] <= self._load.seconds:
            now, _, caller, ended = heapq.heappop(self._events)
            self._dispatch.now = now
            if ended is not None:
                self._end(ended, now)
            else:
                self._send(caller, now)
        self._count_those_that_wait()
        shares = {name: self._shares[name] for name in (BATCH, *names)}
        return Result(shares=shares, waits=tuple(self._waits))

    def _schedule(self, at: float, caller: str, ended: Request | None = None) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), caller, ended))

    def _send(self, caller: str, now: float) -> None:
        tokens = self._random.randint(FEWEST_TOKENS, MOST_TOKENS)
        kind = self._load.batch if caller == BATCH else self._load.single
        priority = PRIORITY_NUMBERS[kind if self._is_fair else "default"]
        request = Request(
            RequestId(str(next(self._numbers))),
            GenerateRequest(prompt="", model="m", priority=priority),
            Limits(),
            now,
            caller=Caller(name=caller if self._is_fair else "everybody"),
        )
        request.expected_charge = tokens
        self._jobs[request] = _Job(caller, tokens, now)
        assigned = self._dispatch.enqueue(request)
        if isinstance(assigned, Refuse):
            raise RuntimeError("the queue has no limit here")
        self._start(assigned, now)

    def _start(self, assigned: Iterable[AssignSlot], now: float) -> None:
        for assign in assigned:
            job = self._jobs[assign.request]
            if job.caller != BATCH:
                self._waits.append(now - job.arrived)
            self._schedule(now + job.tokens / TOKENS_PER_SECOND, job.caller, assign.request)

    def _end(self, request: Request, now: float) -> None:
        job = self._jobs.pop(request)
        self._shares[job.caller] += job.tokens
        if job.caller != BATCH:
            self._schedule(now + self._load.pause, job.caller)
        self._start(self._dispatch.ended(request, charge=job.tokens), now)

    def _count_those_that_wait(self) -> None:
        """At the end, some have waited for that long already, and got nothing."""
        for request, job in self._jobs.items():
            if job.caller != BATCH and request.slot is None:
                self._waits.append(self._load.seconds - job.arrived)


def run(load: Load, seed: int, *, is_fair: bool) -> Result:
    """What comes of a load; the same for the same seed."""
    return _Run(load, seed, is_fair=is_fair).result()


def jain(shares: Iterable[float]) -> float:
    """Jain, Chiu and Hawe (1984): the square of the sum, by n times the sum of squares."""
    given = list(shares)
    squares = sum(share * share for share in given)
    return sum(given) ** 2 / (len(given) * squares) if squares else 1.0


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.add_argument("--entries", type=at_least(1), default=256, help="requests of the batch")
    parser.add_argument("--callers", type=at_least(1), default=7, help="callers beside it")
    parser.add_argument("--slots", type=at_least(1), default=4)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    size = {"entries": arguments.entries, "callers": arguments.callers, "slots": arguments.slots}
    loads = {
        "callers alike": Load(**size),
        "interactive beside batch": Load(**size, batch="batch", single="interactive", pause=5.0),
    }
    columns = ("load", "queue", "the batch's share", "Jain index", "single requests", "p95 wait, s")
    table = Table(*columns, box=None)
    for name, load in loads.items():
        for is_fair in (False, True):
            result = run(load, arguments.seed, is_fair=is_fair)
            share = result.shares[BATCH] / max(1, sum(result.shares.values()))
            table.add_row(
                name,
                "fair" if is_fair else "first come, first served",
                f"{share:.0%}",
                f"{result.jain:.2f}",
                str(len(result.waits)),
                f"{result.p95:.1f}",
            )
    wide_console().print(table)


if __name__ == "__main__":
    main()
