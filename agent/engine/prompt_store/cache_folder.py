"""The folder of `--cache-dir`: files that appear atomically, and a limit for all of them.

The folder has stored prompts (by key), and the disk tier's blocks and checkpoints. Several agents
may share the folder, on one host or over a network. A file is written under a temporary name,
synchronised and renamed. During that time the writer holds a lock on the file, which the system
drops with the process. An unlocked temporary file is left over from a killed process, and is
removed.

To make room for prompts, which requests have asked for, blocks are evicted, but prompts are never
evicted for blocks.

Invariant: after a save these files, including unfinished ones, take at most the limit. Agents that
add blocks at the same time may exceed the limit a little, until an agent scans the folder again.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from .stored_prompt import State

PROMPT_SUFFIX = ".prompt"
BLOCK_SUFFIX = ".block"
CHECKPOINT_SUFFIX = ".checkpoint"
UNFINISHED_SUFFIX = ".part"

MAX_FILES = 2**17
"""Maximum files of the folder; the oldest ones are removed, however small they are."""

SLACK = 1 / 32
"""Share of the limit that is freed at once for blocks, since a scan of all files takes a while."""

SURE = 1 / 4
"""Share of the free room to use before the next scan, since other agents use the room too."""

_SUFFIXES = (PROMPT_SUFFIX, BLOCK_SUFFIX, CHECKPOINT_SUFFIX, UNFINISHED_SUFFIX)


class FullError(Exception):
    """Stored prompts leave no room for blocks."""


Write = Callable[[Path, tuple[State, ...]], None]


@dataclass(frozen=True, slots=True)
class CacheFile:
    """A file of the folder: the time of its last use in nanoseconds, and its size in bytes."""

    used_at: int
    name: str
    size: int

    @property
    def is_prompt(self) -> bool:
        """Return whether the file is a stored prompt, which a request asked for."""
        return self.name.endswith(PROMPT_SUFFIX)


def write_whole(path: Path, parts: tuple[State, ...]) -> None:
    """Write `path` under a temporary name, synchronise and rename it. Raises `OSError`."""
    with NamedTemporaryFile(
        dir=path.parent, prefix=path.stem, suffix=UNFINISHED_SUFFIX, delete=False
    ) as file:
        unfinished = Path(file.name)
        try:
            with suppress(OSError):  # not every file system has locks
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    with suppress(OSError):  # the file is there; not every file system can promise more
        _sync(path.parent)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class CacheFolder:
    """The files in the folder `path`, with at most `limit_bytes` in total. Its methods block."""

    def __init__(self, path: Path, *, limit_bytes: int, write: Write = write_whole) -> None:
        """Make the folder if it is missing. Raises `OSError`."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self.limit_bytes = limit_bytes
        self._write = write
        self._surely_free = 0.0

    def files(self) -> Iterator[CacheFile]:
        """Yield all files that count, in any order. Raises `OSError`."""
        with os.scandir(self.path) as entries:
            for entry in entries:
                if not entry.name.endswith(_SUFFIXES):
                    continue
                try:
                    stat = entry.stat()
                except FileNotFoundError:  # another agent removed it
                    continue
                yield CacheFile(stat.st_mtime_ns, entry.name, stat.st_size)

    def names(self, suffix: str) -> list[str]:
        """Return the names of all files that end with `suffix`, in any order. Raises `OSError`."""
        with os.scandir(self.path) as entries:
            return [entry.name for entry in entries if entry.name.endswith(suffix)]

    def save(self, path: Path, parts: tuple[State, ...]) -> None:
        """Write the stored prompt `path`, which fits the limit. Raises `OSError`."""
        size = sum(map(len, parts))
        self._make_room(size, but=path)
        self._write(path, parts)
        self._make_room(size, but=path)  # another agent may have saved meanwhile

    def add(self, path: Path, parts: tuple[State, ...]) -> list[CacheFile] | None:
        """Write the block `path`; return the other files if the folder was scanned.

        Raises `OSError`, and `FullError` if stored prompts leave no room.
        """
        size = sum(map(len, parts))
        files = None
        if size > self._surely_free:
            slack = SLACK * self.limit_bytes
            files = self._make_room(size + slack, but=path, spares_prompts=True)
            num_free = self.limit_bytes - sum(file.size for file in files)
            if num_free < size:
                raise FullError
            self._surely_free = SURE * num_free
        self._write(path, parts)
        self._surely_free -= size
        return files

    def collect_leftovers(self) -> int:
        """Remove unfinished files of killed processes; return their number. Raises `OSError`."""
        left = [file.name for file in self.files() if file.name.endswith(UNFINISHED_SUFFIX)]
        return sum(_removed(self.path / name) for name in left)

    def _make_room(
        self, size: float, *, but: Path, spares_prompts: bool = False
    ) -> list[CacheFile]:
        """Remove files other than `but` until `size` bytes fit; return the remaining files."""
        files = sorted(
            (file for file in self.files() if file.name != but.name),
            key=lambda file: (file.is_prompt, file.used_at, file.name),
        )
        excess = sum(file.size for file in files) + size - self.limit_bytes
        num_gone = 0
        for file in files:
            has_room = excess <= 0 and len(files) - num_gone < MAX_FILES
            if has_room or (spares_prompts and file.is_prompt):
                break
            (self.path / file.name).unlink(missing_ok=True)
            excess -= file.size
            num_gone += 1
        return files[num_gone:]


def _removed(path: Path) -> bool:
    """Remove a file unless a process is writing it; return whether it was removed."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except OSError:  # somebody holds it, it is gone, or it is another user's
        return False
    return True
