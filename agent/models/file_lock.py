"""Locks between processes: `flock` on a file that serves only as a lock.

The system drops a lock when its process ends, for whatever reason. The holder of an exclusive lock
may unlink the lock file; a process that waited for the lock then opens the path again.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Self


class FileLock:
    """A lock that this object holds until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def shared(cls, path: Path) -> Self:
        """Take the lock shared; wait while another process holds it exclusively. Raises
        `OSError`.
        """
        return cls(path, _locked(path, fcntl.LOCK_SH))

    @classmethod
    def exclusive(cls, path: Path) -> Self:
        """Take the lock exclusively; wait while another process holds it. Raises `OSError`."""
        return cls(path, _locked(path, fcntl.LOCK_EX))

    @classmethod
    def try_exclusive(cls, path: Path) -> Self | None:
        """Take the lock exclusively; return `None` if another process holds it. Raises
        `OSError`.
        """
        try:
            return cls(path, _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            return None

    def touch(self) -> None:
        """Set the lock file's time, which records when the guarded file was last used."""
        if self._descriptor is not None:
            os.utime(self._descriptor, times=(time.time(), time.time()))

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _locked(path: Path, operation: int) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, operation)
            if os.fstat(descriptor).st_nlink > 0:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
