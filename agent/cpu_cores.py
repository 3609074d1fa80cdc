"""How many threads the engine should use: physical cores, since two on one core only wait."""

import math
import os
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def default_threads() -> int:
    """The physical cores this process may use, or fewer where its container's quota is less."""
    allowed = _allowed()
    cores = physical_cores(_text(_CPUINFO), allowed) or len(allowed)
    return max(1, min(cores, quota_cores(_text(_CPU_MAX)) or cores))


def physical_cores(cpuinfo: str, allowed: set[int]) -> int | None:
    """Distinct cores behind the `allowed` processors; `None` where `cpuinfo` does not say."""
    cores = set()
    for block in cpuinfo.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        facts = {key.strip(): value.strip() for key, _, value in pairs}
        if "core id" in facts and int(facts["processor"]) in allowed:
            cores.add((facts.get("physical id"), facts["core id"]))
    return len(cores) or None


def quota_cores(cpu_max: str) -> int | None:
    """Cores in a cgroup's `cpu.max` (quota and period in microseconds); `None`: no limit."""
    quota, _, period = cpu_max.strip().partition(" ")
    return math.ceil(int(quota) / int(period)) if quota.isdigit() and period.isdigit() else None


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
