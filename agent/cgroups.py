"""The control groups of this process: a container's, a unit's, and the groups around them."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def cgroup_folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the folders with the limits of `controller` ("cpu", "memory"), outermost group first.

    Control groups of versions 1 and 2 name their files differently, so the caller tries both
    names. A container may see the host's path, which does not exist inside the container. Its own
    group is then the mount itself.
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
