"""Counting the cores that are worth a thread."""

import os

from arriero.agent.cpu_cores import default_threads, physical_cores, quota_cores


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


def test_a_containers_quota() -> None:
    assert quota_cores("max 100000\n") is None
    assert quota_cores("") is None
    assert quota_cores("200000 100000\n") == 2
    assert quota_cores("150000 100000\n") == 2
    assert quota_cores("10000 100000\n") == 1


def test_the_default_is_sane_here() -> None:
    assert 1 <= default_threads() <= (os.cpu_count() or 1)
