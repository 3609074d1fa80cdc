"""The interface of what holds bytes under names. All of it blocks: call it from threads."""

from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

ROOTS = ("files", "batches")
"""The folders of all names."""


class BlobsAway(Exception):
    """The storage cannot be reached, or cannot be read or written; a retry may help."""


class BlobWriter(Protocol):
    """One blob that is written. Nobody sees it before `commit`."""

    def write(self, data: bytes) -> None:
        """Append. Raises `BlobsAway`, as the others."""

    def commit(self) -> None:
        """It is whole: it is there after a crash, in place of what had its name."""

    def abort(self) -> None:
        """Leave nothing behind. Does nothing after `commit`; never raises."""


class Blobs(Protocol):
    """Names are like `files/file-1` and come from us, never from a request."""

    def create(self, name: str) -> BlobWriter:
        """Begin a blob. Raises `BlobsAway`, as the others."""

    def open(self, name: str, offset: int = 0) -> AbstractContextManager[BinaryIO]:
        """Read a blob from `offset` on."""

    def delete(self, name: str) -> None:
        """Delete it; well if it is gone."""

    def delete_all(self, folder: str) -> None:
        """Delete whatever has a name in this folder."""

    def names(self, folder: str) -> list[str]:
        """The whole blobs with names in this folder, and in those below it."""

    def modified_at(self, name: str) -> float | None:
        """Seconds since 1970 when it was written; `None` if it is gone or nobody knows."""

    def sweep(self, before: float) -> None:
        """Delete what was never finished, and not written since `before`."""
