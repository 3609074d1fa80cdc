"""How long programs take to start: `python -m bench.start FORMER`, in turn with another checkout.

FORMER is as in `bench.against_former`. `--help` is timed to its end, a daemon to its ready line.
Processor time is that of all processes of a program, so it tells of a busy machine, too.
"""

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import DEVNULL, run
from time import perf_counter

from bench.against_former import show
from bench.arguments import at_least
from bench.figures import ratio
from bench.store import save
from integration_tests.computing import seconds_of
from integration_tests.daemons import BIN, Fleet


def helped(program: Path) -> dict[str, float]:
    """What `--help` takes."""
    began, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
    run([program, "--help"], stdout=DEVNULL, check=True)
    after, name = getrusage(RUSAGE_CHILDREN), f"{program.name} --help"
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {name: perf_counter() - began, f"{name}, processor": used}


async def started(programs: Path) -> dict[str, float]:
    """What everything takes once."""
    figures: dict[str, float] = {}
    for name in ("arriero", "balancer", "agent"):
        figures |= helped(programs / name)
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack, programs, forks=False)
        for name, start in (("balancer", fleet.start_balancer), ("agent", fleet.start_agent)):
            began = perf_counter()
            daemon = await start()
            figures[name] = perf_counter() - began
            used = [seconds_of(Path(f"/proc/{pid}")) for pid in daemon.pids]
            figures[f"{name}, processor"] = sum(used)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.start")
    parser.add_argument("former", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="times both are started")
    arguments = parser.parse_args(sys.argv[1:])
    sides = {"now": BIN, "former": arguments.former / ".venv" / "bin"}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(arguments.rounds):
        for name in sides if number % 2 else reversed(sides):
            rounds[name].append(asyncio.run(started(sides[name])))
    show({"start": rounds})
    ratios = {name: ratio(rounds["now"], rounds["former"], name) for name in rounds["now"][0]}
    save("start", {"rounds": rounds, "ratios": {n: asdict(each) for n, each in ratios.items()}})


if __name__ == "__main__":
    main()
