"""What readers of `/api/v1/events` take, with their sockets: `python -m bench.watching`.

The simulated fleet of `bench.event_costs` in this process, at the pace of the clock, and the
management port with readers from another process. Counted is the processor time of this thread
but for what the fleet itself takes: making events, handing them to each reader's socket, and the
event loop's work for that. So other work on the machine hardly shows.
"""

import argparse
import asyncio
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import quantiles
from urllib.parse import urlsplit

import uvloop
from aiohttp import web
from rich.table import Table

from arriero.balancer.api.transport.connections import Connections, ConnectionsRunner
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from bench.arguments import at_least
from bench.event_costs import TICK, Clock, Simulation
from bench.events import Readers
from bench.store import save, wide_console
from tests.balancer.management.apps import management_app

SETTLE = 3.0
"""Seconds between a change of readers and the measurement: snapshots are sent in that time."""

STEPS_IN = 5
"""Ticks between two steps of an agent, which are a second."""


class WallClock(Clock):
    """Goes on by itself."""

    def __call__(self) -> float:
        return time.monotonic()

    def go_on(self, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """`busy`: the share of a core that was not the fleet's own work, which took `fleet`."""

    readers: int
    busy: float
    fleet: float
    events_per_second: float
    kilobytes_per_second: float


class Drive:
    """Gives the simulated fleet its ticks, and knows what they took of this thread."""

    def __init__(self, simulation: Simulation, turnover: int) -> None:
        self.seconds = 0.0
        self._simulation = simulation
        self._num_ended = round(turnover * TICK)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + TICK, loop.time())
            await asyncio.sleep(due - loop.time())
            begun = time.thread_time()
            self._simulation.tick(self._num_ended, one_in=STEPS_IN)
            self.seconds += time.thread_time() - begun


def read(url: str, num_readers: int) -> None:
    """In a process of its own: read until it is ended."""

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            await Readers(urlsplit(url).netloc).set(num_readers, group)

    uvloop.run(all_of_them())


@contextmanager
def readers(url: str, num: int) -> Iterator[None]:
    if not num:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(target=read, args=(url, num))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


async def here(hub: EventHub, num_readers: int) -> None:
    """Returns when so many read. Raises `TimeoutError`."""
    async with asyncio.timeout(60):
        while hub.num_subscribers != num_readers:  # noqa: ASYNC110 (a hub has no event for that)
            await asyncio.sleep(0.1)


async def measured(drive: Drive, hub: EventHub, num_readers: int, seconds: float) -> Phase:
    """One phase."""
    begun, own, spent = time.monotonic(), drive.seconds, time.thread_time()
    num_points, num_deltas, num_bytes = (
        hub.num_points,
        hub.history.position,
        hub.history.num_bytes_ever,
    )
    await asyncio.sleep(seconds)
    took = time.monotonic() - begun
    fleet = (drive.seconds - own) / took
    busy = (time.thread_time() - spent) / took - fleet
    num_events = hub.num_points - num_points + hub.history.position - num_deltas
    return Phase(
        readers=num_readers,
        busy=busy,
        fleet=fleet,
        events_per_second=num_events / took,
        kilobytes_per_second=(hub.history.num_bytes_ever - num_bytes) / took / 1e3,
    )


async def run(given: argparse.Namespace) -> list[Phase]:
    simulation = Simulation(given.agents, given.requests, WallClock())
    hub, drive = EventHub(simulation.runtime), Drive(simulation, given.turnover)
    desired_state = DesiredStateService(simulation.runtime, lambda _persist: asyncio.Future())
    app = management_app(simulation.runtime, hub, Metrics(), desired_state=desired_state)
    runner = ConnectionsRunner(app, Connections(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    phases: list[Phase] = []
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in (drive.run(), hub.run())]
        for num_readers in [0, *[given.readers, 0] * given.rounds]:
            with readers(url, num_readers):
                await here(hub, num_readers)
                await asyncio.sleep(SETTLE)
                phases.append(await measured(drive, hub, num_readers, given.seconds))
            print(phases[-1], file=sys.stderr)
        for task in tasks:
            task.cancel()
    hub.close()
    await runner.cleanup()
    return phases


def show(phases: list[Phase]) -> None:
    watched = [each for each in phases if each.readers]
    idle = sorted(each.busy for each in phases if not each.readers)
    found = [each.busy - idle[len(idle) // 2] for each in watched]
    table = Table(title="What watching takes of a core, but for the fleet's own work")
    for heading in ("readers", "of a core, %", "the fleet, %", "events/s", "KB/s a reader"):
        table.add_column(heading, justify="right")
    for each in phases:
        table.add_row(
            str(each.readers),
            f"{each.busy * 100:.2f}",
            f"{each.fleet * 100:.0f}",
            f"{each.events_per_second:.1f}",
            f"{each.kilobytes_per_second:.0f}",
        )
    wide_console().print(table)
    low, middle, high = (each * 100 for each in quantiles(found, n=4))
    print(
        f"{watched[0].readers} readers take {middle:.2f} % of a core "
        f"({min(found) * 100:.2f} to {max(found) * 100:.2f}, half of them {low:.2f} to {high:.2f})"
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.watching")
    parser.add_argument("--agents", type=at_least(1), default=1000)
    parser.add_argument("--requests", type=at_least(1), default=10_000)
    parser.add_argument("--turnover", type=at_least(1), default=200, help="requests a second")
    parser.add_argument("--readers", type=at_least(1), default=20)
    parser.add_argument("--rounds", type=at_least(2), default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each phase")
    return parser.parse_args(arguments)


def main() -> None:
    given = parse(sys.argv[1:])
    logging.disable()
    phases = uvloop.run(run(given))
    show(phases)
    save("watching", {"given": vars(given), "phases": [asdict(each) for each in phases]})


if __name__ == "__main__":
    main()
