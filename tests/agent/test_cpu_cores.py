"""Counting the cores that are worth a thread."""

import os
from pathlib import Path

import pytest

from arriero.agent.cpu_cores import default_threads, physical_cores, quota_cores
from arriero.agent.host_facts import host_facts
from tests.agent.test_host_facts import write


def cpuinfo(*cores: tuple[int, int]) -> str:
    return "\n\n".join(
        f"processor\t: {number}\nphysical id\t: {package}\ncore id\t\t: {core}\nflags\t\t: sse: x"
        for number, (package, core) in enumerate(cores)
    )


TWO_THREADS_A_CORE = cpuinfo((0, 0), (0, 1), (0, 0), (0, 1))
TWO_PACKAGES = cpuinfo((0, 0), (0, 1), (1, 0), (1, 1))


def test_threads_of_one_core_count_once() -> None:
    assert physical_cores(TWO_THREADS_A_CORE, {0, 1, 2, 3}) == 2


def test_cores_of_several_packages_are_told_apart() -> None:
    assert physical_cores(TWO_PACKAGES, {0, 1, 2, 3}) == 4


def test_only_allowed_processors_count() -> None:
    assert physical_cores(TWO_PACKAGES, {0, 3}) == 2
    assert physical_cores(TWO_THREADS_A_CORE, {0, 2}) == 1


def test_where_nothing_is_told() -> None:
    assert physical_cores("", {0, 1}) is None
    assert physical_cores("processor\t: 0\nBogoMIPS\t: 108.00", {0}) is None


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [
        ("max 100000\n", None),
        ("", None),
        ("junk", None),
        ("100000 0", None),
        ("200000 100000\n", 2),
        ("750000 100000\n", 7),
        ("199999 100000\n", 1),
        ("50000 100000\n", 1),
        ("12500 50000\n", 1),
    ],
)
def test_a_quota_is_of_whole_cores(tmp_path: Path, cpu_max: str, cores: int | None) -> None:
    """A container's own group is the mount."""
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": cpu_max})
    assert quota_cores(root) == cores


def test_the_least_quota_of_a_unit_and_those_around_it_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/system.slice"
    files = {
        "proc/self/cgroup": "0::/system.slice/arriero-agent.service\n",
        f"{group}/cpu.max": "400000 100000\n",
        f"{group}/arriero-agent.service/cpu.max": "max 100000\n",
    }
    assert quota_cores(write(tmp_path, files)) == 4
    files[f"{group}/arriero-agent.service/cpu.max"] = "250000 100000\n"
    assert quota_cores(write(tmp_path, files)) == 2


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize("place", ["", "docker/x/"])
def test_a_quota_of_version_1(tmp_path: Path, mount: str, place: str) -> None:
    group = f"sys/fs/cgroup/{mount}/{place}"
    files = {
        "proc/self/cgroup": "5:memory:/docker/y\n4:cpu,cpuacct:/docker/x\n0::/\n",
        f"{group}cpu.cfs_quota_us": "350000\n",
        f"{group}cpu.cfs_period_us": "100000\n",
    }
    assert quota_cores(write(tmp_path, files)) == 3
    files[f"{group}cpu.cfs_quota_us"] = "-1\n"
    assert quota_cores(write(tmp_path, files)) is None


def test_threads_are_those_of_the_quota(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}
    root = write(tmp_path, files)
    assert default_threads(root) == 1
    assert host_facts(is_pinned=False, root=root).cores == 1


def test_the_default_is_sane_here() -> None:
    assert 1 <= default_threads() <= (os.cpu_count() or 1)
