"""The control groups of this process: a container's, a unit's, and the groups around them."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def cgroup_folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the folders with the limits of `controller` ("cpu", "memory"), outermost group first.

    Groups of version 1 and 2 have files of different names, so the caller tries both. In a
    container the path may be the host's, which does not exist there: its own group is the mount.
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
    """Return the text of a system file; empty if it is missing or cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
