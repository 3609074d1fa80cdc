"""The folder that one balancer has for unfinished work. Who has the folder is the runner."""

import fcntl
import os
from pathlib import Path
from typing import Self

MAX_RUNNERS = 64
"""Balancers of one machine that share a place."""


class WorkPlace:
    """A context manager: leaving it gives the folder up.

    A lock tells whose a folder is; it goes with the process, however that ends. So the next process
    takes up the same folder, its name, and what was left in it.
    """

    def __init__(self, folder: Path, name: str, lock: int) -> None:
        self.folder = folder
        self.name = name
        self._lock = lock

    @classmethod
    def take(cls, root: Path) -> Self:
        """The first folder below `root` that nobody has. Raises `OSError`."""
        for number in range(1, MAX_RUNNERS + 1):
            folder = root / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            return cls(folder, _name(folder / "name"), lock)
        raise OSError(f"{MAX_RUNNERS} balancers use {root} already")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)


def _name(path: Path) -> str:
    """What the runner is called in the store: the same after a restart, and nobody else."""
    if not path.exists() or not (name := path.read_text().strip()):
        name = f"runner-{os.urandom(8).hex()}"
        unfinished = path.with_suffix(".new")
        unfinished.write_text(name)
        unfinished.replace(path)
    return name
