"""What the kernel says of a process and of a core; Linux only."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of `pid` so far."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_bytes(pid: int) -> int:
    """What `pid` has in memory."""
    return _sizes(pid, "status")["VmRSS"]


def resident_together(pids: Iterable[int]) -> int:
    """What the processes of a daemon have in memory together.

    Files are mapped by several of them, so those of the one that maps the most are counted. The
    proportional set size would say it exactly, but changes with what else maps those files.
    """
    each = [_sizes(pid, "status") for pid in pids]
    return sum(one["RssAnon"] for one in each) + max(one["RssFile"] for one in each)


def proportional_bytes(pid: int) -> int:
    """What `pid` has in memory, of shared pages its share."""
    return _sizes(pid, "smaps_rollup")["Pss"]


def _sizes(pid: int, file: str) -> dict[str, int]:
    """Sizes in bytes, by name."""
    lines = (line.split() for line in Path(f"/proc/{pid}/{file}").read_text().splitlines())
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines if line[-1] == "kB"}


def busy_seconds(core: int) -> float:
    """How long `core` was not idle since the machine started."""
    lines = Path("/proc/stat").read_text().splitlines()
    ticks = next(line.split()[1:8] for line in lines if line.startswith(f"cpu{core} "))
    user, nice, system, _idle, _wait, irq, soft = map(int, ticks)
    return (user + nice + system + irq + soft) / _TICKS


def descendants(pid: int) -> list[int]:
    """`pid` and the processes it started that still run, and theirs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in descendants(int(child)))]
