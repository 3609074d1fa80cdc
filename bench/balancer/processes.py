"""What the kernel says of a process and of a core; Linux only."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of `pid` so far."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_bytes(pid: int) -> int:
    """What `pid` has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


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
