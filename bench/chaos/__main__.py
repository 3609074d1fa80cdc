"""`python -m bench.chaos`: arguments, and a run from its start to its exit code."""

import argparse
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import uvloop

from bench.chaos import report
from bench.chaos.clients.load import Load
from bench.chaos.clients.operator import Operator
from bench.chaos.clients.rogues import Rogues
from bench.chaos.clients.rude_clients import RudeClients
from bench.chaos.clock import Clock, has_compiler
from bench.chaos.faults import KINDS, Kind, Need, chosen, possible
from bench.chaos.hosts import Ground, Hosts
from bench.chaos.judge import Judge
from bench.chaos.plan import rounds
from bench.chaos.run import Finding, RoundResult, Run
from bench.chaos.strikes import World
from bench.chaos.wire.network import OPERATOR, Loopback, Namespaces, Network, enter
from bench.harness import Flags, at_least

DISK_SIZE = "24m"


def parse() -> argparse.Namespace:
    names = ", ".join(kind.name for kind in KINDS)
    parser = Flags("chaos", __doc__)
    parser.add_argument("--seed", type=at_least(0), default=1, help="seed of plan and load")
    parser.add_argument("--seconds", type=at_least(1), default=600, help="begin rounds so long")
    parser.add_argument("--rounds", type=at_least(1), default=None, help="at most so many rounds")
    parser.add_argument("--agents", type=at_least(2), default=3, help="number of agents")
    parser.add_argument("--faults", type=_kinds, default=KINDS, help=f"some of {names}")
    parser.add_argument(
        "--quiet", type=float, default=3.0, help="longest silence without a fault, in seconds"
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="agents that give equal answers; log-probabilities and chance have to be equal, too",
    )
    parser.add_argument("--logs", type=Path, help="folder for the daemons' logs")
    return parser.parse_args()


def _kinds(text: str) -> tuple[Kind, ...]:
    try:
        return chosen(text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def can(is_inside: bool) -> frozenset[Need]:
    """What this machine has."""
    clock = {Need.CLOCK} if has_compiler() else set()
    return frozenset({Need.NETWORK, Need.DISK, *clock} if is_inside else clock)


def tried(requested: Sequence[Kind], has: frozenset[Need]) -> tuple[Kind, ...]:
    """The requested kinds that this machine can do; prints those that it cannot."""
    kinds = possible(requested, has)
    for kind in requested:
        if kind not in kinds and kind.needs is not None:
            print(f"not tried: {kind.name}, which needs {kind.needs.value}")
    if not kinds:
        raise SystemExit("bench: nothing is left to try")
    return kinds


@asynccontextmanager
async def ground(
    has: frozenset[Need], arguments: argparse.Namespace, kinds: Sequence[Kind]
) -> AsyncIterator[Ground]:
    """A network and a folder. The clock is only meddled with where it is struck."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        network: Network = Loopback()
        (folder / "disk").mkdir()
        if Need.NETWORK in has:
            network = await Namespaces.make(arguments.agents, arguments.seed)
            stack.push_async_callback(network.close)
            _mount(folder / "disk")
            stack.callback(subprocess.run, ("umount", "-l", folder / "disk"), check=True)
        clock = Clock(folder) if any(kind.needs is Need.CLOCK for kind in kinds) else None
        if clock:
            clock.build()
        yield Ground(network, folder, clock)


def _mount(folder: Path) -> None:
    """A small file system in memory."""
    mount = ("mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "chaos")
    subprocess.run((*mount, folder), check=True)


async def run(arguments: argparse.Namespace, has: frozenset[Need]) -> int:
    """The exit code."""
    kinds = tried(arguments.faults, has)
    print(f"seed {arguments.seed}: {len(kinds)} kinds of faults, {arguments.agents} agents")
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(ground(has, arguments, kinds))
        local = (OPERATOR, 0) if here.network.is_real else None
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(local_addr=local, force_close=True),
                timeout=aiohttp.ClientTimeout(total=5),
            )
        )
        hosts = Hosts(here, arguments.agents, http, arguments.deterministic)
        stack.push_async_callback(hosts.close)
        if arguments.logs:
            stack.callback(_write_logs, hosts, arguments.logs)
        await hosts.start()
        await hosts.until_well()
        return await _run(arguments, kinds, hosts)


async def _run(arguments: argparse.Namespace, kinds: Sequence[Kind], hosts: Hosts) -> int:
    address = hosts.ground.network.client_address()
    load = Load(hosts.inference, address, time.monotonic, arguments.deterministic)
    await load.learn()
    judge = Judge(load.answers, arguments.quiet)
    world = World(hosts, RudeClients(hosts.inference, hosts.ground.network), Rogues(hosts))
    running = Run(world, load, judge, Operator(hosts.http, hosts.management))
    results = await _rounds(running, arguments, kinds)
    leaving = [Finding(0, what) for what in await hosts.leave()]
    report.show(report.rows(results, judge))
    findings = [each for result in results for each in result.findings] + leaving
    if findings:
        print(report.in_full(findings))
        print(f"{len(findings)} findings; again: --seed {arguments.seed}")
    return int(bool(findings))


async def _rounds(
    running: Run, arguments: argparse.Namespace, kinds: Sequence[Kind]
) -> list[RoundResult]:
    """All rounds that could be."""
    results: list[RoundResult] = []
    end = time.monotonic() + arguments.seconds
    for planned in rounds(arguments.seed, kinds, arguments.agents):
        if time.monotonic() > end or planned.number > (arguments.rounds or planned.number):
            break
        result = await running.round(planned)
        print(report.line(result), flush=True)
        results.append(result)
        if result.is_last:
            break
    return results


def _write_logs(hosts: Hosts, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    daemons = [*hosts.past, *hosts.all]
    for number, daemon in enumerate(daemons):
        name = daemon.ready.get("name", "balancer")
        (folder / f"{number}-{name}.log").write_text("\n".join(daemon.stderr) + "\n")


def main() -> None:
    arguments = parse()
    needs_room = any(kind.needs in (Need.NETWORK, Need.DISK) for kind in arguments.faults)
    is_inside = needs_room and enter()
    raise SystemExit(uvloop.run(run(arguments, can(is_inside))))


if __name__ == "__main__":
    main()
