"""The control groups that this process is in: a container's, a unit's, those around them."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def cgroup_folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders with the limits of `controller` ("cpu", "memory"), the outermost group first.

    Groups of version 1 and 2 have files of different names, so the caller looks for either. In a
    container the path may be the host's, which is not there: its own group is the mount.
    """
    mounts = root / "sys/fs/cgroup"
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            yield from _levels(mounts, path)
        elif controller in controllers.split(","):
            for name in dict.fromkeys((controller, controllers)):  # distributions have either
                yield from _levels(mounts / name, path)


def _levels(mount: Path, path: str) -> Iterator[Path]:
    parts = [part for part in path.split("/") if part and part != ".."]
    yield from (mount.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def text_of(path: Path) -> str:
    """The text of a system file; empty if the file is not there or cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
