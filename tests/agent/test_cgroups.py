from pathlib import Path

from arriero.agent.cgroups import cgroup_folders, text_of


def test_each_group_from_the_outermost_on(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    groups = "7:cpuset:/a\n4:cpu,cpuacct:/docker/x\n0::/../user.slice\n"
    (tmp_path / "proc/self/cgroup").write_text(groups)
    mounts = tmp_path / "sys/fs/cgroup"
    assert list(cgroup_folders("cpu", tmp_path)) == [
        *(mounts / name for name in ("cpu", "cpu/docker", "cpu/docker/x")),
        *(mounts / name for name in ("cpu,cpuacct", "cpu,cpuacct/docker", "cpu,cpuacct/docker/x")),
        *(mounts, mounts / "user.slice"),
    ]


def test_a_system_without_groups(tmp_path: Path) -> None:
    assert list(cgroup_folders("cpu", tmp_path)) == []
    assert text_of(tmp_path) == ""
