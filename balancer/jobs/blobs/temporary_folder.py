"""A folder for files that end with their process.

A process that is killed leaves its folder behind; the next balancer of this machine removes it. A
lock tells whose folder it is: it goes with the process, however that ends.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "arriero-files-"
LOCK = "lock"

GRACE = 60.0
"""Seconds that a new folder is left alone: its process may not have the lock yet."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Removed at the end, with whatever is in it. Raises `OSError` where none can be made."""
    remove_left_behind(Path(tempfile.gettempdir()), time.time() - GRACE)
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        lock = os.open(Path(name) / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(lock)


def remove_left_behind(parent: Path, before: float) -> None:
    """Remove the folders in `parent` whose process has ended, last changed before then."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or gone by now
            if folder.lstat().st_mtime < before:
                _remove_if_free(folder)


def _remove_if_free(folder: Path) -> None:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
