"""How long programs take to start: `python -m bench.start FORMER`, in turn with another checkout.

FORMER is as in `bench.against_former`. `--help` is timed to its end, a daemon to its ready line.
Processor time is that of all processes of a program, so it tells of a busy machine, too.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import DEVNULL, run
from time import perf_counter

from bench.figures import Rounds, median_of, ratio, shown
from bench.harness import Flags, finished, in_turn, print_table, save
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
    flags = Flags("start", __doc__)
    flags.add_argument("former", type=Path, help="the other checkout")
    flags.rounds(5)
    given = flags.parse_args()
    sides = {"now": BIN, "former": given.former / ".venv" / "bin"}
    rounds: Rounds = {name: [] for name in sides}
    for _, name in in_turn(list(sides), given.rounds):
        rounds[name].append(finished(started(sides[name])))
    rows = []
    for name in rounds["now"][0]:
        medians = (shown(name, median_of(each, name)) for each in rounds.values())
        rows.append([name, *medians, str(ratio(rounds["now"], rounds["former"], name))])
    print_table("Starts; ratios: median (least to most)", ("", *sides, "ratio"), rows)
    save("start", {"rounds": rounds})


if __name__ == "__main__":
    main()
