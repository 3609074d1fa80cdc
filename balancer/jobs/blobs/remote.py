"""Bytes in storage that fsspec reaches: `s3://bucket/folder`, `gs://…`, `memory://…`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, BinaryIO, cast

from .port import BlobsAway


class RemoteBlobs:
    """`Blobs` below `root` of an fsspec file system."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def create(self, name: str) -> "RemoteWriter":
        with told(name):
            self._system.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            return RemoteWriter(self._system, self._path(name))

    @contextmanager
    def open(self, name: str, offset: int = 0) -> Iterator[BinaryIO]:
        with told(name), self._system.open(self._path(name), "rb") as file:
            file.seek(offset)
            yield cast(BinaryIO, file)

    def delete(self, name: str) -> None:
        with told(name), suppress(FileNotFoundError):
            self._system.rm_file(self._path(name))

    def delete_all(self, folder: str) -> None:
        with told(folder), suppress(FileNotFoundError):
            self._system.rm(self._path(folder), recursive=True)

    def names(self, folder: str) -> list[str]:
        with told(folder):
            self._system.invalidate_cache()
            found = self._system.find(self._path(folder))
        # What a system calls a path may begin with a slash, or not.
        return [f"{folder}/{path.rpartition(f'/{folder}/')[2]}" for path in found]

    def modified_at(self, name: str) -> float | None:
        try:
            modified: datetime = self._system.modified(self._path(name))
        except (OSError, NotImplementedError):
            return None
        return modified.timestamp()

    def sweep(self, before: float) -> None:
        """Object stores show what is whole, and forget the rest by a rule of the bucket."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


class RemoteWriter:
    """A `BlobWriter`. Object stores show an object when it is whole; others are told apart by
    who knows the name: nobody does before `commit`."""

    def __init__(self, system: Any, path: str) -> None:
        self._system = system
        self._path = path
        self._file = system.open(path, "wb")
        self._is_done = False

    def write(self, data: bytes) -> None:
        with told(self._path):
            self._file.write(data)

    def commit(self) -> None:
        with told(self._path):
            self._file.close()
        self._is_done = True

    def abort(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        with suppress(OSError, NotImplementedError):
            if (discard := getattr(self._file, "discard", None)) is not None:
                discard()  # of what was sent in parts
            if hasattr(self._file, "forced"):
                self._file.closed = True  # fsspec would send the rest
            else:
                self._file.close()
        with suppress(OSError, NotImplementedError):
            self._system.rm_file(self._path)


@contextmanager
def told(name: str) -> Iterator[None]:
    """What the system says inside becomes `BlobsAway`; never with more than its kind and words."""
    try:
        yield
    except OSError as error:
        raise BlobsAway(f"{name}: {str(error)[:200] or type(error).__name__}") from error
