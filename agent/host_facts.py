"""The facts of this host: memory within its container's limit, cores, platform."""

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from ..shared.models.assignments import Device, HostFacts
from .cgroups import ROOT, cgroup_folders, text_of
from .cpu_cores import default_threads

_UNLIMITED = 2**60
"""Limits from this number on mean no limit: cgroup v1 writes a number near 2**63."""


def host_facts(
    *,
    is_pinned: bool,
    disk_free: int | None = None,
    devices: Iterable[Device] = (),
    answers_fit: bool = False,
    root: Path = ROOT,
) -> HostFacts:
    """Return the facts as the system reports them now; 0 if unknown. Reads a few files."""
    return HostFacts(
        memory=total_memory(root) or 0,
        devices=tuple(devices),
        cores=default_threads(root),
        disk_free=disk_free,
        platform=f"{platform.system()} {platform.machine()}",
        is_pinned=is_pinned,
        answers_fit=answers_fit,
    )


def total_memory(root: Path = ROOT) -> int | None:
    """Return the host's memory in bytes, or its container's limit if that is lower."""
    total = _meminfo(root).get("MemTotal") or _physical_memory()
    limits = [each for limit, _ in _limits(root) if (each := limit) < _UNLIMITED]
    return min([*([total] if total else []), *limits], default=None)


def available_memory(root: Path = ROOT) -> int | None:
    """Return the bytes of memory that are free now. File caches count as free."""
    rooms = [max(0, limit - used) for limit, used in _limits(root) if limit < _UNLIMITED]
    free = _meminfo(root).get("MemAvailable")
    return min([*([free] if free is not None else []), *rooms], default=None)


def _meminfo(root: Path) -> dict[str, int]:
    found = {}
    for line in text_of(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        number = value.split()[:1]
        if number and number[0].isdigit():
            found[name] = int(number[0]) * 1024
    return found


def _physical_memory() -> int | None:
    names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limits(root: Path) -> list[tuple[int, int]]:
    """Return limit and use, in bytes, of each cgroup of this process."""
    found = (
        _limit(folder, *names) for folder in cgroup_folders("memory", root) for names in (_V2, _V1)
    )
    return [each for each in found if each is not None]


_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _limit(folder: Path, limit: str, use: str, cache: str) -> tuple[int, int] | None:
    most = text_of(folder / limit).strip()
    used = text_of(folder / use).strip()
    if not most.isdigit():
        return None  # "max", or no such group
    stat = dict(line.split()[:2] for line in text_of(folder / "memory.stat").splitlines() if line)
    cached = int(stat.get(cache, "0"))
    return int(most), max(0, (int(used) if used.isdigit() else 0) - cached)
