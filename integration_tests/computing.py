"""How long processes and threads have computed: seconds that no load on the machine stretches."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of(process: Path) -> float:
    """Of a process or a thread, by its folder in `/proc`: user and system time together.

    Fields are counted from the end of its name, which may have spaces.
    """
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
