"""What processes have computed, in seconds that no load stretches, and the workers they have."""

import os
from collections.abc import Iterator
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of(process: Path) -> float:
    """Of a process or a thread, by its folder in `/proc`: user and system time together.

    Fields are counted from the end of its name, which may have spaces.
    """
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def num_workers(engine: int) -> int:
    """The workers of grammars that an engine's process has, the one in advance included."""
    return sum(1 for process in _children(engine) for _ in _children(process))


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())
