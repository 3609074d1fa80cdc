"""What readers of `/api/v1/events` cost the balancer: `python -m bench.events`.

A balancer on a core of its own, simulated agents with all slots taken, and requests that turn over:
as one ends, another starts. Phases without and with readers take turns. What readers cost is the
difference of the balancer's processor time in neighbouring phases. Phases are short and many, since
what the load itself costs goes up and down by more than that.
"""

import argparse
import asyncio
import itertools
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import uvloop
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect

from bench.arguments import at_least
from bench.balancer.processes import cpu_seconds
from bench.balancer.sides import Cores, Starter
from bench.store import save, wide_console

REQUESTS_PER_SOCKET = 500
SETTLE = 2.0
"""Seconds between a change of readers and the measurement: snapshots are sent in that time."""
READ_BYTES = 2**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What was measured with so many readers; `busy` is the share of a core."""

    readers: int
    busy: float
    requests_per_second: float
    kilobytes_per_second: float
    events_per_second: float


class Load:
    """Requests over WebSockets; when one ends the next starts."""

    def __init__(self, num_tokens: int) -> None:
        self.num_ended = 0
        self._num_tokens = num_tokens
        self._numbers = itertools.count()

    async def keep_up(self, url: str, num_requests: int, spread: float) -> None:
        """Keep `num_requests` running, the first of them started over `spread` seconds. Never
        returns."""
        async with (
            connect(url, compression=None, max_size=None, ping_interval=None, proxy=None) as socket,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._follow(socket))
            for _ in range(num_requests):
                await self._ask(socket)
                await asyncio.sleep(spread / num_requests)

    async def _follow(self, socket: ClientConnection) -> None:
        async for frame in socket:
            if "error" in json.loads(frame):
                raise RuntimeError(f"a request failed: {frame[:300]!r}")
            self.num_ended += 1
            await self._ask(socket)

    async def _ask(self, socket: ClientConnection) -> None:
        call = {"jsonrpc": "2.0", "id": next(self._numbers), "method": "generate"}
        params = {"prompt": "a", "max_tokens": self._num_tokens, "stream": False}
        await socket.send(json.dumps({**call, "params": params}))


class Readers:
    """Browsers that watch the fleet, as far as the balancer can see."""

    def __init__(self, address: str) -> None:
        self.num_bytes = 0
        self.num_events = 0
        self._address = address
        self._tasks: list[asyncio.Task[None]] = []

    async def set(self, num: int, group: asyncio.TaskGroup) -> None:
        """Have so many read."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = [group.create_task(self._read()) for _ in range(num)]

    async def _read(self) -> None:
        url = urlsplit(f"http://{self._address}")
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        try:
            head = f"GET /api/v1/events HTTP/1.1\r\nHost: {self._address}\r\n\r\n"
            writer.write(head.encode())
            while data := await reader.read(READ_BYTES):
                self.num_bytes += len(data)
                self.num_events += data.count(b"event: ")
            raise RuntimeError("the balancer closed a reader's connection")
        finally:
            writer.close()


async def measured(
    pid: int, load: Load, readers: Readers, num_readers: int, seconds: float
) -> Phase:
    """One phase."""
    loop = asyncio.get_running_loop()
    started, cpu, ended = loop.time(), cpu_seconds(pid), load.num_ended
    num_bytes, num_events = readers.num_bytes, readers.num_events
    await asyncio.sleep(seconds)
    took = loop.time() - started
    share = max(num_readers, 1) * took
    return Phase(
        readers=num_readers,
        busy=(cpu_seconds(pid) - cpu) / took,
        requests_per_second=(load.num_ended - ended) / took,
        kilobytes_per_second=(readers.num_bytes - num_bytes) / share / 1e3,
        events_per_second=(readers.num_events - num_events) / share,
    )


async def run(given: argparse.Namespace) -> list[Phase]:
    """All phases, without readers first and last. Raises `RuntimeError`."""
    cores = Cores(*sorted(os.sched_getaffinity(0))[:2])
    with ExitStack() as stack:
        starter = Starter(stack, Path(stack.enter_context(TemporaryDirectory())))
        pid, addresses = await asyncio.to_thread(started, starter, cores, given)
        load = Load(round(given.rate * given.requests / given.turnover))
        readers = Readers(addresses["management"])
        phases: list[Phase] = []
        lifetime = given.requests / given.turnover
        async with asyncio.TaskGroup() as group:
            url = f"ws://{addresses['inference']}/api/v1/socket"
            clients = [
                group.create_task(load.keep_up(url, REQUESTS_PER_SOCKET, lifetime))
                for _ in range(given.requests // REQUESTS_PER_SOCKET)
            ]
            await asyncio.sleep(lifetime + SETTLE)
            for num_readers in [0, *[given.readers, 0] * given.rounds]:
                await readers.set(num_readers, group)
                await asyncio.sleep(SETTLE)
                phase = await measured(pid, load, readers, num_readers, given.seconds)
                print(phase, file=sys.stderr)
                phases.append(phase)
            await readers.set(0, group)
            for client in clients:
                client.cancel()
        return phases


def started(
    starter: Starter, cores: Cores, given: argparse.Namespace
) -> tuple[int, dict[str, str]]:
    """The balancer's process and addresses, once its agents are there."""
    balancer = starter.start(
        cores.balancer,
        str(Path(sys.executable).parent / "balancer"),
        *("--inference-addr", "127.0.0.1:0", "--management-addr", "127.0.0.1:0"),
        *("--max-connections", "20000", "--max-buffered-requests", "20000"),
        *("--drain-timeout", "0s", "--heartbeat-timeout", "30s", "--log-level", "warning"),
    )
    addresses = starter.ready(balancer)
    agents = starter.start(
        cores.others,
        *(sys.executable, "-m", "bench.balancer.agents"),
        *("--url", f"ws://{addresses['management']}", "--agents", str(given.agents)),
        *("--slots", str(-(-given.requests // given.agents)), "--rate", str(given.rate)),
    )
    starter.ready(agents)
    return balancer.pid, addresses


def costs(phases: list[Phase]) -> list[float]:
    """The share of a core that readers took: each phase against the mean of its neighbours."""
    return [
        phases[n].busy - (phases[n - 1].busy + phases[n + 1].busy) / 2
        for n in range(1, len(phases), 2)
    ]


def show(phases: list[Phase]) -> None:
    table = Table(title="What readers of events cost the balancer")
    for heading in ("readers", "balancer's core, %", "requests/s", "events/s", "KB/s a reader"):
        table.add_column(heading, justify="right")
    for phase in phases:
        table.add_row(
            str(phase.readers),
            f"{phase.busy * 100:.1f}",
            f"{phase.requests_per_second:.0f}",
            f"{phase.events_per_second:.1f}",
            f"{phase.kilobytes_per_second:.0f}",
        )
    wide_console().print(table)
    found = costs(phases)
    low, middle, high = (each * 100 for each in quantiles(found, n=4))
    print(f"readers take {middle:.1f} % of a core (half of the phases: {low:.1f} to {high:.1f})")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.events")
    parser.add_argument("--agents", type=at_least(1), default=1000)
    parser.add_argument("--requests", type=at_least(REQUESTS_PER_SOCKET), default=10_000)
    parser.add_argument("--readers", type=at_least(1), default=20)
    parser.add_argument("--turnover", type=float, default=200.0, help="requests a second")
    parser.add_argument("--rate", type=float, default=0.2, help="tokens a second and request")
    parser.add_argument("--rounds", type=at_least(2), default=16)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each phase")
    return parser.parse_args(arguments)


def main() -> None:
    given = parse(sys.argv[1:])
    phases = uvloop.run(run(given))
    show(phases)
    save("events", {"given": vars(given), "phases": [asdict(phase) for phase in phases]})


if __name__ == "__main__":
    main()
