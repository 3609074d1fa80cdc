"""The number of threads for the engine: one per physical core, since two on one core only wait."""

import os
from pathlib import Path

from .cgroups import ROOT, cgroup_folders, text_of


def default_threads(root: Path = ROOT) -> int:
    """Return the number of physical cores that this process may use.

    If a control group has a lower quota, the result is the quota.
    """
    allowed = _allowed()
    cores = physical_cores(text_of(root / "proc/cpuinfo"), allowed) or len(allowed)
    return max(1, min(cores, quota_cores(root) or cores))


def physical_cores(cpuinfo: str, allowed: set[int]) -> int | None:
    """Return the distinct cores of the `allowed` processors; `None` if `cpuinfo` lacks them."""
    cores = set()
    for block in cpuinfo.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        facts = {key.strip(): value.strip() for key, _, value in pairs}
        if "core id" in facts and int(facts["processor"]) in allowed:
            cores.add((facts.get("physical id"), facts["core id"]))
    return len(cores) or None


def quota_cores(root: Path = ROOT) -> int | None:
    """Return the whole cores within the lowest quota of the process' cgroups, at least one.

    Returns `None` without a quota. A thread beyond the quota would make all threads wait for the
    end of its period.
    """
    quotas = [
        quota for folder in cgroup_folders("cpu", root) if (quota := _quota(folder)) is not None
    ]
    return max(1, int(min(quotas))) if quotas else None


def _quota(folder: Path) -> float | None:
    """Return the cores of one group; `None` without a quota.

    The files have microseconds, and `max` or -1 if there is no quota.
    """
    quota, _, period = text_of(folder / "cpu.max").strip().partition(" ")
    if not quota:
        quota = text_of(folder / "cpu.cfs_quota_us").strip()
        period = text_of(folder / "cpu.cfs_period_us").strip()
    has_quota = quota.isdigit() and period.isdigit() and int(period) > 0
    return int(quota) / int(period) if has_quota else None


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
