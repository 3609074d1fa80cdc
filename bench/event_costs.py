"""What the dashboard's events cost the balancer, part by part: `python -m bench.event_costs`.

The fleet's core and the hub of events in this process, without sockets and on a clock of its own:
each fifth of a second every agent gives a step's tokens and requests turn over. Processor time is
that of making the events, once for all readers. Other work on the machine hardly shows in it.
`bench.watching` adds readers and their sockets; `bench.events` measures a whole balancer, and needs
a quiet machine.
"""

import argparse
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import islice
from statistics import mean

from rich.table import Table

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.fleet.runtime.outbox import AgentBacklog
from arriero.balancer.fleet.runtime.stream import Stream
from arriero.balancer.management.events import pause_after
from arriero.balancer.management.fleet_feed import MAX_REQUESTS_SENT, FleetFeed
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.serializers import dumps, snapshot_json, throughput_json
from arriero.balancer.management.throughput import Meter, Throughput
from arriero.shared.inference import AgentId, GenerateRequest, Rates, RequestId, Usage
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Ended,
    FromBalancer,
    Hello,
    Item,
    Output,
    Piece,
    Start,
)
from arriero.shared.models.assignments import HostFacts
from arriero.shared.reports.model_info import ModelInfo
from bench.arguments import at_least
from bench.store import save, wide_console

TICK = 0.2
"""Seconds between two looks of the hub at the fleet, as in a balancer."""

MODEL = ModelInfo(
    name="simulated", architecture="none", parameters=0, size_bytes=0, context_size=1_000_000
)
PIECE = " word"


@dataclass(slots=True)
class Clock:
    """Goes on when it is called."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += seconds


@dataclass(slots=True)
class SilentAgent:
    """Holds the requests it was given, and generates when it is called."""

    started: deque[tuple["SilentAgent", RequestId]]
    """What was ever started, and with whom: the same for all agents."""
    link: LinkId = field(default=LinkId(0), init=False)
    running: list[RequestId] = field(default_factory=list)

    def send(self, message: FromBalancer) -> None:
        if isinstance(message, Start):
            self.running.append(message.id)
            self.started.append((self, message.id))

    def backlog(self) -> AgentBacklog:
        return AgentBacklog()

    def disconnect(self, reason: str) -> None:
        raise RuntimeError(f"a simulated agent was given up: {reason}")


class Simulation:
    """A fleet whose slots are all taken."""

    def __init__(self, num_agents: int, num_requests: int, clock: Clock | None = None) -> None:
        self.clock = Clock() if clock is None else clock
        self.runtime = FleetRuntime(
            Fleet(Limits(max_buffered_requests=num_requests, request_timeout=1e9)),
            recorder=Metrics(),
            clock=self.clock,
        )
        self._oldest: deque[tuple[SilentAgent, RequestId]] = deque()
        self.agents = [
            self._join(number, -(-num_requests // num_agents)) for number in range(num_agents)
        ]
        self._num_ticks = 0
        self._streams: dict[RequestId, Stream] = {}
        for _ in range(num_requests):
            self._ask()

    def tick(self, num_ended: int, *, one_in: int = 1) -> None:
        """A fifth of a second: tokens for each request, then so many end and others start.

        One in so many agents makes a step.
        """
        self.clock.go_on(TICK)
        self._num_ticks += 1
        for agent in self.agents[self._num_ticks % one_in :: one_in]:
            items = tuple(Piece(id=id, text=PIECE, tokens=(1,)) for id in agent.running)
            self.runtime.agent_said(agent.link, Output(items=items))
        for _ in range(num_ended):
            self._end(*self._oldest.popleft())
            self._ask()

    def _join(self, number: int, slots: int) -> SilentAgent:
        agent = SilentAgent(self._oldest)
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=AgentId(f"{number:032x}"),
            name=f"simulated-{number}",
            version="simulated",
            slots=slots,
            model=MODEL,
            labels={"zone": "north", "gpu": "yes"},
            facts=HostFacts(memory=2**36, cores=32, platform="Linux"),
        )
        agent.link = self.runtime.agent_joined(agent, hello)
        return agent

    def _ask(self) -> None:
        stream = self.runtime.open(GenerateRequest(prompt="a", max_tokens=9999), caller=ANONYMOUS)
        self._streams[stream.id] = stream

    def _end(self, agent: SilentAgent, id: RequestId) -> None:
        agent.running.remove(id)
        usage = Usage(prompt_tokens=1, completion_tokens=1)
        ended: Item = Ended(id=id, finish_reason="stop", usage=usage, rates=Rates())
        self.runtime.agent_said(agent.link, Output(items=(ended,)))
        del self._streams[id]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Processor milliseconds and bytes of one delta, and of one second's throughput."""

    delta_ms: float
    delta_bytes: float
    point_ms: float
    point_bytes: float

    @property
    def share(self) -> float:
        """The share of a core, at one point a second, and deltas as often as the hub makes them."""
        return (self.delta_ms * self.deltas_per_second + self.point_ms) / 1000

    @property
    def deltas_per_second(self) -> float:
        return 1 / (TICK + pause_after(self.delta_ms / 1000))


class Publisher:
    """Makes events as the hub does, when it is called."""

    def __init__(self, simulation: Simulation) -> None:
        self._runtime = simulation.runtime
        self._clock = simulation.clock
        view = self._runtime.views.view(MAX_REQUESTS_SENT)
        self._meter = Meter(view.agents, view.tokens_total, self._clock())
        self._throughput = Throughput()
        self._feed = FleetFeed()
        snapshot = snapshot_json(
            view, self._throughput, self._clock(), self._runtime.views.position
        )
        self._feed.restart(snapshot["agents"], snapshot["requests"])
        self._seen = self._metered = self._runtime.views.revision

    def delta(self) -> bytes:
        change = self._runtime.views.changes_since(self._seen)
        if change is None:
            raise RuntimeError("too much changed for a delta")
        self._seen = self._runtime.views.revision
        oldest = islice(self._runtime.views.requests(), MAX_REQUESTS_SENT)
        delta = self._feed.advance(
            change, oldest, self._throughput, self._clock(), self._runtime.views.position
        )
        return dumps(delta)

    def point(self) -> bytes:
        change = self._runtime.views.changes_since(self._metered)
        if change is None:
            raise RuntimeError("too much changed for a point")
        counts = self._runtime.views.tokens_since(self._metered)
        self._metered = self._runtime.views.revision
        totals = self._runtime.views.totals()
        self._throughput = self._meter.measure(
            counts, change.agents_left, totals.tokens_total, self._clock()
        )
        return dumps(throughput_json(totals, self._throughput))


def measured(simulation: Simulation, num_ended: int, num_ticks: int) -> Costs:
    """The means over so many ticks."""
    publisher = Publisher(simulation)
    deltas, points = [], []
    for number in range(num_ticks):
        simulation.tick(num_ended)
        deltas.append(timed(publisher.delta))
        if number % 5 == 4:
            points.append(timed(publisher.point))
    return Costs(
        delta_ms=mean(seconds for seconds, _ in deltas) * 1000,
        delta_bytes=mean(num_bytes for _, num_bytes in deltas),
        point_ms=mean(seconds for seconds, _ in points) * 1000,
        point_bytes=mean(num_bytes for _, num_bytes in points),
    )


def timed(make: Callable[[], bytes]) -> tuple[float, int]:
    """Processor seconds that it took, and bytes that it made."""
    begun = time.process_time()
    num_bytes = len(make())
    return time.process_time() - begun, num_bytes


def show(costs: Costs) -> None:
    table = Table(title="What events cost, made once for all readers")
    for heading in ("", "a second", "processor time, ms", "bytes"):
        table.add_column(heading, justify="right")
    table.add_row(
        "delta",
        f"{costs.deltas_per_second:.1f}",
        f"{costs.delta_ms:.2f}",
        f"{costs.delta_bytes:,.0f}",
    )
    table.add_row("throughput", "1", f"{costs.point_ms:.2f}", f"{costs.point_bytes:,.0f}")
    wide_console().print(table)
    print(f"together {costs.share * 100:.2f} % of a core")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.event_costs")
    parser.add_argument("--agents", type=at_least(1), default=1000)
    parser.add_argument("--requests", type=at_least(1), default=10_000)
    parser.add_argument("--turnover", type=at_least(1), default=200, help="requests a second")
    parser.add_argument("--ticks", type=at_least(5), default=50)
    return parser.parse_args(arguments)


def main() -> None:
    given = parse(sys.argv[1:])
    logging.disable()
    simulation = Simulation(given.agents, given.requests)
    costs = measured(simulation, round(given.turnover * TICK), given.ticks)
    show(costs)
    save("event-costs", {"given": vars(given), **asdict(costs)})


if __name__ == "__main__":
    main()
