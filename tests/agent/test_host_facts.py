from pathlib import Path

import pytest

from arriero.agent.host_facts import available_memory, host_facts, total_memory
from arriero.shared.models.assignments import Device

MEMINFO = "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  600 kB\nHugePages_Total:  0\n"
KB = 1024


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_a_container(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n"})
    assert (total_memory(root), available_memory(root)) == (1000 * KB, 600 * KB)


def test_a_limit_on_any_level_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/kube"
    root = write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/kube/pod\n",
            f"{group}/memory.max": f"{500 * KB}\n",
            f"{group}/memory.current": f"{300 * KB}\n",
            f"{group}/memory.stat": f"anon 5\ninactive_file {100 * KB}\n",
            f"{group}/pod/memory.max": "max\n",
        },
    )
    assert total_memory(root) == 500 * KB
    assert available_memory(root) == 300 * KB, "caches of files give way"


def test_cgroup_version_1(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/docker/x"
    root = write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:cpu:/docker/x\n3:memory:/docker/x\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            f"{group}/memory.limit_in_bytes": f"{400 * KB}\n",
            f"{group}/memory.usage_in_bytes": f"{450 * KB}\n",
            f"{group}/memory.stat": "total_inactive_file 0\n",
        },
    )
    assert (total_memory(root), available_memory(root)) == (400 * KB, 0)


def test_in_a_container_its_own_group_is_the_mount(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/../../elsewhere\n",
            "sys/fs/cgroup/memory.max": f"{200 * KB}\n",
        },
    )
    assert (total_memory(root), available_memory(root)) == (200 * KB, 200 * KB)


@pytest.mark.parametrize("text", ["", "junk", "MemTotal:", "MemTotal: x kB"])
def test_a_system_that_tells_nothing(tmp_path: Path, text: str) -> None:
    root = write(tmp_path, {"proc/meminfo": text, "proc/self/cgroup": "junk"})
    assert available_memory(root) is None
    assert total_memory(root) is None or total_memory(root) == total_memory(tmp_path / "none")


def test_the_facts_of_this_host() -> None:
    device = Device(name="gpu", memory=5)
    facts = host_facts(is_pinned=True, disk_free=7, devices=[device])
    assert facts.memory > 0
    assert facts.cores >= 1
    assert (facts.is_pinned, facts.disk_free, facts.devices) == (True, 7, (device,))
    assert facts.platform
    free = available_memory()
    assert free is not None and 0 < free <= facts.memory
